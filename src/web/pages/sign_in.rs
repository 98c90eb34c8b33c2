//! Signing in.

use maud::{Markup, html};

/// The form: a button if there is a login link, else a field for a key. A link signs in only by submitting a form,
/// because programs that preview links, such as those of chats, would consume it.
pub fn form(link: &str, next: &str) -> Markup {
    html! {
        form class="stack" method="post" action="/login" {
            input type="hidden" name="next" value=(next);
            @if link.is_empty() {
                label {
                    "Personal API key"
                    input type="password" name="key" autocomplete="current-password" required autofocus
                        placeholder="phx_...";
                }
                button class="main" { "Sign in" }
            } @else {
                input type="hidden" name="link" value=(link);
                button class="main" autofocus { "Sign in with this link" }
                p class="quiet" { "The link works once." }
            }
        }
        @if link.is_empty() {
            p class="quiet" { br; "On the machine of the server, " code { "weir login" }
                " prints a link that needs no key. A key has the rights of its scopes here, too." }
        }
    }
}
