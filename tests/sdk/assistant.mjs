// The official TypeScript client of the Model Context Protocol, in both of its generations: does what each line of standard
// input says, and prints what came of it, a line of JSON each.
//
// node assistant.mjs NODE_MODULES GENERATION http URL KEY
// node assistant.mjs NODE_MODULES GENERATION stdio PROGRAM ARGUMENT...
//
// GENERATION is `v1`, which begins with initialize, or `v2`, which tries the newest revision first.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [modules, generation, kind, ...rest] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${modules}/@modelcontextprotocol/${path}`).href);

async function parts() {
  if (generation === "v2") {
    const { Client, StreamableHTTPClientTransport } = await load("client/dist/index.mjs");
    const { StdioClientTransport } = await load("client/dist/stdio.mjs");
    return { Client, StreamableHTTPClientTransport, StdioClientTransport };
  }
  const { Client } = await load("sdk/dist/esm/client/index.js");
  const { StreamableHTTPClientTransport } = await load("sdk/dist/esm/client/streamableHttp.js");
  const { StdioClientTransport } = await load("sdk/dist/esm/client/stdio.js");
  return { Client, StreamableHTTPClientTransport, StdioClientTransport };
}

const { Client, StreamableHTTPClientTransport, StdioClientTransport } = await parts();

function transport() {
  if (kind === "stdio") {
    return new StdioClientTransport({ command: rest[0], args: rest.slice(1) });
  }
  const requestInit = { headers: { Authorization: `Bearer ${rest[1]}` } };
  return new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit });
}

async function pages(fetch, name) {
  const found = [];
  let cursor;
  do {
    const page = await fetch(cursor === undefined ? {} : { cursor });
    found.push(...page[name]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
}

async function called(client, { name, arguments: sent = {}, seconds }) {
  const options = seconds === undefined ? {} : { timeout: seconds * 1000 };
  const asked = { name, arguments: sent };
  // The first generation has the schema of results between.
  const result = generation === "v2" ? await client.callTool(asked, options) : await client.callTool(asked, undefined, options);
  const structured = result.structuredContent ?? null;
  return { text: result.content[0].text, structured, failed: result.isError === true };
}

const doing = {
  about: (client) => ({
    revision: client.getNegotiatedProtocolVersion?.() ?? null,
    name: client.getServerVersion().name,
    instructions: client.getInstructions(),
  }),
  tools: (client) => pages((page) => client.listTools(page), "tools"),
  call: called,
  resources: (client) => pages((page) => client.listResources(page), "resources"),
  templates: (client) => pages((page) => client.listResourceTemplates(page), "resourceTemplates"),
  read: async (client, { uri }) => (await client.readResource({ uri })).contents[0].text,
  prompts: (client) => pages((page) => client.listPrompts(page), "prompts"),
  prompt: async (client, { name, arguments: sent = {} }) =>
    (await client.getPrompt({ name, arguments: sent })).messages[0].content.text,
};

const options = generation === "v2" ? { versionNegotiation: { mode: "auto" } } : {};
const client = new Client({ name: "test", version: "1" }, options);
await client.connect(transport());
for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text);
  let told;
  try {
    told = { result: (await doing[line.do](client, line)) ?? null };
  } catch (error) {
    told = { error: { code: error.code ?? null, message: error.message } };
  }
  console.log(JSON.stringify(told));
}
await client.close();
