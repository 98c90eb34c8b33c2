//! Tests of the durable store: names and contents of objects survive power cuts and failed syncs.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use object_store::{MultipartUpload, ObjectStoreExt, WriteMultipart};

use super::*;
use weir_disk::{DiskDir, DiskEntry, DiskFile, OsDisk};
use weir_sim::disk::{SimDisk, Survival};

const SURVIVALS: [Survival; 6] = [
    Survival::Lose,
    Survival::Keep,
    Survival::Mixed(1),
    Survival::Mixed(2),
    Survival::Mixed(3),
    Survival::Mixed(4),
];

fn on_disk() -> (tempfile::TempDir, DurableStore) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = DurableStore::new(Arc::new(OsDisk), dir.path().join("table"));
    store.recover().expect("an empty directory");
    (dir, store)
}

fn in_memory(disk: &SimDisk) -> DurableStore {
    DurableStore::new(Arc::new(disk.clone()), "/data/table")
}

fn path(text: &str) -> Path {
    Path::parse(text).expect("a valid path")
}

async fn read(store: &DurableStore, location: &str) -> Result<Vec<u8>> {
    Ok(store.get(&path(location)).await?.bytes().await?.to_vec())
}

async fn names(store: &DurableStore, prefix: Option<&str>) -> Vec<String> {
    let prefix = prefix.map(path);
    let listed: Vec<ObjectMeta> =
        store.list(prefix.as_ref()).try_collect().await.expect("a listing");
    listed.into_iter().map(|meta| meta.location.to_string()).collect()
}

#[tokio::test]
async fn objects_are_files_with_their_own_names() {
    let (dir, store) = on_disk();
    let locations = [
        "month=2026-11/part-1.parquet",
        "_delta_log/0.json",
        "a b/c%23d",
        "\u{e4}/\u{1F600}",
        "top",
    ];
    for location in locations {
        store.put(&path(location), location.into()).await.expect("a put");
        let on_disk = std::fs::read(dir.path().join("table").join(location)).expect("the file");
        assert_eq!(on_disk, location.as_bytes());
        assert_eq!(read(&store, location).await.expect("the object"), location.as_bytes());
    }
    let mut sorted: Vec<String> = locations.map(str::to_owned).into();
    sorted.sort();
    assert_eq!(names(&store, None).await, sorted);
}

#[tokio::test]
async fn ranges_are_exact() {
    let (_dir, store) = on_disk();
    let big: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    store.put(&path("big"), big.clone().into()).await.expect("a put");
    assert_eq!(read(&store, "big").await.expect("all of it"), big);
    for range in [0..1, 5..10, 19_999_999..20_000_000, 3..17_000_000] {
        let part = store.get_range(&path("big"), range.clone()).await.expect("a range");
        let index = |offset: u64| usize::try_from(offset).expect("a small file");
        assert!(part == big[index(range.start)..index(range.end)], "{range:?}");
    }
    let parts = store.get_ranges(&path("big"), &[7..9, 0..2]).await.expect("ranges");
    assert_eq!(parts, [big[7..9].to_vec(), big[0..2].to_vec()]);
    let beyond = 19_999_999..20_000_001;
    store.get_ranges(&path("big"), &[0..1, beyond]).await.expect_err("beyond the end");
    store.get_range(&path("big"), 20_000_000..20_000_001).await.expect_err("behind the end");
    let suffix =
        GetOptions { range: Some(object_store::GetRange::Suffix(4)), ..Default::default() };
    let tail = store.get_opts(&path("big"), suffix).await.expect("a suffix");
    assert_eq!(tail.range, 19_999_996..20_000_000);
}

#[tokio::test]
async fn metadata_agrees_everywhere() {
    let (_dir, store) = on_disk();
    let put = store.put(&path("a/b"), "1234".into()).await.expect("a put");
    let head = store.head(&path("a/b")).await.expect("a head");
    assert_eq!((head.size, &head.e_tag), (4, &put.e_tag));
    assert_eq!(store.get(&path("a/b")).await.expect("a get").meta, head);
    let listed: Vec<ObjectMeta> = store.list(None).try_collect().await.expect("a listing");
    assert_eq!(listed, std::slice::from_ref(&head));
    let again = store.put(&path("a/b"), "12345".into()).await.expect("another put");
    assert_ne!(again.e_tag, put.e_tag);
    let unless = GetOptions { if_none_match: again.e_tag, ..Default::default() };
    let unchanged = store.get_opts(&path("a/b"), unless).await.expect_err("not modified");
    assert!(matches!(unchanged, Error::NotModified { .. }), "{unchanged}");
}

#[tokio::test]
async fn creation_happens_once() {
    let (_dir, store) = on_disk();
    let create = |text: &'static str| {
        let store = store.clone();
        async move { store.put_opts(&path("c"), text.into(), PutMode::Create.into()).await }
    };
    let (one, two) = tokio::join!(create("one"), create("two"));
    let won = if one.is_ok() { "one" } else { "two" };
    assert_ne!(one.is_ok(), two.is_ok());
    let lost = one.and(two).expect_err("one of them");
    assert!(matches!(lost, Error::AlreadyExists { .. }), "{lost}");
    assert_eq!(read(&store, "c").await.expect("the winner"), won.as_bytes());
    store.put(&path("c"), "three".into()).await.expect("an overwrite");
    assert_eq!(read(&store, "c").await.expect("the new one"), b"three");
    let update = PutMode::Update(object_store::UpdateVersion { e_tag: None, version: None });
    let update = store.put_opts(&path("c"), "four".into(), update.into()).await;
    assert!(matches!(update, Err(Error::NotImplemented { .. })));
    assert_eq!(names(&store, None).await, ["c"], "no temporary file shows");
}

#[tokio::test]
async fn missing_objects_are_not_found() {
    let (_dir, store) = on_disk();
    store.put(&path("dir/file"), "x".into()).await.expect("a put");
    for location in ["nothing", "dir", "dir/nothing", "dir/file/below"] {
        let location = path(location);
        for error in [
            store.get(&location).await.expect_err("a get"),
            store.head(&location).await.expect_err("a head"),
            store.delete(&location).await.expect_err("a delete"),
            store.copy(&location, &path("to")).await.expect_err("a copy"),
        ] {
            assert!(matches!(error, Error::NotFound { .. }), "{location}: {error}");
        }
    }
    for reserved in [".tmp-1", "dir/.tmp-1", ".tmp-dir/file"] {
        store.put(&path(reserved), "x".into()).await.expect_err("a reserved name");
    }
    store.put(&Path::default(), "x".into()).await.expect_err("no name");
    assert_eq!(names(&store, Some("nothing")).await, [""; 0]);
    assert_eq!(names(&store, Some("dir/file")).await, [""; 0]);
}

#[tokio::test]
async fn listings_go_by_segments_and_hide_what_is_unfinished() {
    let (dir, store) = on_disk();
    for location in ["a/1", "a/b/2", "ab/3", "c"] {
        store.put(&path(location), "x".into()).await.expect("a put");
    }
    std::fs::write(dir.path().join("table/a/.tmp-left"), "x").expect("a left-over");
    assert_eq!(names(&store, Some("a")).await, ["a/1", "a/b/2"]);
    assert_eq!(names(&store, None).await, ["a/1", "a/b/2", "ab/3", "c"]);
    let after: Vec<ObjectMeta> =
        store.list_with_offset(None, &path("a/b/2")).try_collect().await.expect("a listing");
    assert_eq!(after.len(), 2);
    let level = store.list_with_delimiter(Some(&path("a"))).await.expect("a level");
    assert_eq!(level.common_prefixes, [path("a/b")]);
    assert_eq!(level.objects.len(), 1);
    let root = store.list_with_delimiter(None).await.expect("the root");
    assert_eq!(root.common_prefixes, [path("a"), path("ab")]);

    assert!(dir.path().join("table/a/.tmp-left").exists());
    store.recover().expect("a recovery");
    assert!(!dir.path().join("table/a/.tmp-left").exists());
    assert_eq!(names(&store, None).await.len(), 4);
}

#[tokio::test]
async fn copies_and_renames() {
    let (_dir, store) = on_disk();
    store.put(&path("a"), "a".into()).await.expect("a put");
    store.put(&path("b"), "b".into()).await.expect("a put");
    store.copy(&path("a"), &path("new/c")).await.expect("a copy");
    store.copy(&path("a"), &path("b")).await.expect("a copy over something");
    store.copy(&path("a"), &path("b")).await.expect("a copy over itself");
    assert_eq!(read(&store, "b").await.expect("the copy"), b"a");
    let taken = store.copy_if_not_exists(&path("a"), &path("b")).await.expect_err("taken");
    assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken}");
    store.put(&path("a"), "a2".into()).await.expect("an overwrite");
    assert_eq!(read(&store, "b").await.expect("the copy"), b"a", "a copy is its own object");
    store.rename(&path("new/c"), &path("b")).await.expect("a rename between names of one file");
    let taken = store.rename_if_not_exists(&path("a"), &path("b")).await.expect_err("taken");
    assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken}");
    store.rename_if_not_exists(&path("a"), &path("d")).await.expect("a rename");
    assert_eq!(names(&store, None).await, ["b", "d"]);
}

#[tokio::test]
async fn uploads_in_parts() {
    let (dir, store) = on_disk();
    let mut upload = store.put_multipart(&path("m/whole")).await.expect("an upload");
    let parts = [upload.put_part("one ".into()), upload.put_part("two".into())];
    for part in parts.into_iter().rev() {
        part.await.expect("a part, the last one first");
    }
    assert_eq!(names(&store, None).await, [""; 0], "invisible before it is complete");
    upload.complete().await.expect("a completion");
    assert_eq!(read(&store, "m/whole").await.expect("the object"), b"one two");
    upload.complete().await.expect_err("a second completion");

    let mut hole = store.put_multipart(&path("m/hole")).await.expect("an upload");
    drop(hole.put_part("never written".into()));
    hole.put_part("written".into()).await.expect("a part");
    hole.complete().await.expect_err("a part is missing");

    let mut aborted = store.put_multipart(&path("m/aborted")).await.expect("an upload");
    aborted.put_part("x".into()).await.expect("a part");
    aborted.abort().await.expect("an abort");

    let mut streamed =
        WriteMultipart::new(store.put_multipart(&path("m/streamed")).await.expect("an upload"));
    let bytes = vec![7; 12 << 20];
    streamed.write(&bytes);
    streamed.finish().await.expect("a stream");
    assert!(read(&store, "m/streamed").await.expect("the object") == bytes);
    let left = std::fs::read_dir(dir.path().join("table/m")).expect("the directory").count();
    assert_eq!(left, 2, "nothing but the two objects");
}

/// Goal: after a power cut at any time, an acknowledged put is complete, and an unacknowledged one is
/// complete or absent. Method: cut at every operation, with every kind of loss.
#[tokio::test]
async fn a_power_cut_leaves_whole_objects() {
    // Three sectors, so that the loss of some is detected.
    let content = |n: u8| vec![n; 1500];
    let puts = [
        ("log/0", PutMode::Create, 1),
        ("log/1", PutMode::Create, 2),
        ("month=1/a", PutMode::Overwrite, 3),
        ("log/hint", PutMode::Overwrite, 4),
        ("log/hint", PutMode::Overwrite, 5),
    ];
    for cut in 0.. {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let mut answered = 0;
        if in_memory(&disk).recover().is_ok() {
            let store = in_memory(&disk);
            for (location, mode, n) in puts.clone() {
                let put = store.put_opts(&path(location), content(n).into(), mode.into()).await;
                if put.is_err() {
                    break;
                }
                answered += 1;
            }
        }
        for survival in SURVIVALS {
            let context = format!("cut {cut}, {survival:?}, {answered} answered");
            let disk = disk.power_on(survival);
            let store = in_memory(&disk);
            store.recover().expect("a recovery");
            let mut found = Vec::new();
            for location in names(&store, None).await {
                let bytes = read(&store, &location).await.expect("an object");
                assert!(bytes == content(bytes[0]), "{context}: {location} is not whole");
                found.push((location, bytes[0]));
            }
            for (index, (location, _, n)) in puts.iter().enumerate().take(answered) {
                let replaced = puts.iter().skip(index + 1).any(|(later, ..)| later == location);
                let kept = found.iter().any(|(at, m)| at == location && (m == n || replaced));
                assert!(kept, "{context}: lost {location} {n}");
            }
        }
        if answered == puts.len() {
            assert!(cut > 25, "the puts are more operations than that");
            return;
        }
    }
}

#[tokio::test]
async fn a_power_cut_in_an_upload_leaves_nothing() {
    for cut in 0.. {
        let disk = SimDisk::new();
        in_memory(&disk).recover().expect("a recovery");
        disk.cut_after(disk.operations() + cut);
        let upload = async {
            let mut upload = in_memory(&disk).put_multipart(&path("a/b")).await?;
            upload.put_part(vec![1; 700].into()).await?;
            upload.put_part(vec![2; 700].into()).await?;
            upload.complete().await
        };
        let answered = upload.await.is_ok();
        for survival in SURVIVALS {
            let disk = disk.power_on(survival);
            let store = in_memory(&disk);
            store.recover().expect("a recovery");
            match names(&store, None).await.len() {
                0 => assert!(!answered, "cut {cut}, {survival:?}"),
                _ => assert_eq!(read(&store, "a/b").await.expect("the object").len(), 1400),
            }
            let dir = disk.list(FilePath::new("/data/table/a")).unwrap_or_default();
            assert!(dir.len() <= 1, "cut {cut}, {survival:?}: left-overs");
        }
        if answered {
            return;
        }
    }
}

#[tokio::test]
async fn a_failed_sync_of_a_file_fails_its_put_alone() {
    let disk = SimDisk::new();
    let store = in_memory(&disk);
    store.recover().expect("a recovery");
    disk.fail_sync_after(0);
    store.put(&path("a"), "x".into()).await.expect_err("the sync fails");
    assert_eq!(names(&store, None).await, [""; 0]);
    store.put(&path("a"), "x".into()).await.expect("the next file is another one");
}

/// A disk of a process that is killed, or on which the sync of a directory fails.
#[derive(Clone, Debug)]
struct Unreliable {
    disk: SimDisk,
    /// Number of name changes that still succeed before the process is killed; the disk continues.
    changes_left: Arc<Mutex<u64>>,
    fail_sync_dir: Arc<AtomicBool>,
}

impl Unreliable {
    fn new(disk: &SimDisk, changes_left: u64) -> Arc<Self> {
        Arc::new(Self {
            disk: disk.clone(),
            changes_left: Arc::new(Mutex::new(changes_left)),
            fail_sync_dir: Arc::default(),
        })
    }

    fn change(&self) -> io::Result<&SimDisk> {
        let mut left = self.changes_left.lock();
        *left = left.checked_sub(1).ok_or_else(|| io::Error::other("simulated death"))?;
        Ok(&self.disk)
    }
}

impl Disk for Unreliable {
    fn create_new(&self, path: &FilePath) -> io::Result<Box<dyn DiskFile>> {
        self.change()?.create_new(path)
    }
    fn open(&self, path: &FilePath) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path)
    }
    fn create_dir_all(&self, path: &FilePath) -> io::Result<()> {
        self.change()?.create_dir_all(path)
    }
    fn list(&self, dir: &FilePath) -> io::Result<Vec<DiskEntry>> {
        self.disk.list(dir)
    }
    fn metadata(&self, path: &FilePath) -> io::Result<DiskEntry> {
        self.disk.metadata(path)
    }
    fn rename(&self, from: &FilePath, to: &FilePath) -> io::Result<()> {
        self.change()?.rename(from, to)
    }
    fn hard_link(&self, from: &FilePath, to: &FilePath) -> io::Result<()> {
        self.change()?.hard_link(from, to)
    }
    fn remove(&self, path: &FilePath) -> io::Result<()> {
        self.change()?.remove(path)
    }
    fn open_dir(&self, dir: &FilePath) -> io::Result<Box<dyn DiskDir>> {
        Ok(Box::new(UnreliableDir { disk: self.clone(), dir: self.disk.open_dir(dir)? }))
    }
    fn free_bytes(&self, path: &FilePath) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
}

#[derive(Debug)]
struct UnreliableDir {
    disk: Unreliable,
    dir: Box<dyn DiskDir>,
}

impl DiskDir for UnreliableDir {
    fn sync(&self) -> io::Result<()> {
        if self.disk.fail_sync_dir.load(Ordering::Relaxed) {
            return Err(io::Error::other("simulated failure of the sync"));
        }
        self.disk.change()?;
        self.dir.sync()
    }
}

/// A process can be killed between creating a name and syncing it. The next process sees the object, and
/// must not depend on it before it is durable.
#[tokio::test]
async fn what_a_killed_process_left_is_durable_before_it_is_seen() {
    let mut seen_without_answer = 0;
    for changes in 0.. {
        let disk = SimDisk::new();
        let mortal = Unreliable::new(&disk, changes);
        let store = DurableStore::new(mortal, "/data/table");
        let lived = async {
            store.recover().map_err(|error| failed(&path("-"), error))?;
            store.put_opts(&path("log/0"), "x".into(), PutMode::Create.into()).await?;
            store.put(&path("log/hint"), "x".into()).await
        };
        let answered = lived.await.is_ok();
        let successor = in_memory(&disk);
        successor.recover().expect("a recovery");
        let seen = names(&successor, None).await;
        seen_without_answer += usize::from(!answered && seen.len() == 2);
        let found = in_memory(&disk.power_on(Survival::Lose));
        assert_eq!(names(&found, None).await, seen, "death after {changes} changes");
        if answered {
            break;
        }
    }
    assert_eq!(seen_without_answer, 1, "killed between the last name and its sync");
}

#[tokio::test]
async fn a_failed_sync_of_a_directory_ends_all_writing() {
    let disk = Unreliable::new(&SimDisk::new(), u64::MAX);
    let store = DurableStore::new(Arc::clone(&disk) as Arc<dyn Disk>, "/data/table");
    store.recover().expect("a recovery");
    store.put(&path("a"), "x".into()).await.expect("a put");
    disk.fail_sync_dir.store(true, Ordering::Relaxed);
    store.put(&path("b"), "x".into()).await.expect_err("the sync fails");
    disk.fail_sync_dir.store(false, Ordering::Relaxed);
    store.put(&path("c"), "x".into()).await.expect_err("trying again proves nothing");
    store.delete(&path("a")).await.expect_err("no deletion either");
    assert_eq!(read(&store, "a").await.expect("reading goes on"), b"x");
    let doubtful = read(&store, "b").await.expect_err("but not of what may vanish");
    assert!(matches!(doubtful, Error::Generic { .. }), "{doubtful}");
}

/// Goal: want of a descriptor fails only the current write, at any of its files. Method: let any number of
/// files be opened in a write, then none.
#[tokio::test]
async fn want_of_descriptors_passes() {
    type Write = for<'a> fn(&'a DurableStore) -> futures::future::BoxFuture<'a, Result<()>>;
    let writes: [(&str, Write, Option<&str>); 5] = [
        ("create", |store| Box::pin(put(store, "new/dir/b", PutMode::Create)), Some("new/dir/b")),
        ("replace", |store| Box::pin(put(store, "a", PutMode::Overwrite)), Some("a")),
        ("upload", |store| Box::pin(upload(store, "c/d")), Some("c/d")),
        (
            "copy",
            |store| Box::pin(async { store.copy(&path("a"), &path("e/f")).await }),
            Some("e/f"),
        ),
        ("delete", |store| Box::pin(async { store.delete(&path("a")).await }), None),
    ];
    for (name, write, made) in writes {
        let mut failures = 0;
        for opens in 0.. {
            let disk = SimDisk::new();
            let store = in_memory(&disk);
            store.recover().expect("a recovery");
            store.put(&path("a"), "x".into()).await.expect("a put");
            disk.limit_opens(Some(opens));
            let limited = write(&store).await;
            disk.limit_opens(None);
            let context = format!("{name} with {opens} files");
            if let Err(error) = &limited {
                failures += 1;
                assert_eq!(names(&store, None).await, ["a"], "{context}: {error}");
                write(&store).await.expect("the next try");
            }
            store.put(&path("later"), "x".into()).await.expect("another write");
            let disk = disk.power_on(Survival::Lose);
            let store = in_memory(&disk);
            store.recover().expect("a recovery");
            match made {
                Some(made) => assert_eq!(read(&store, made).await.expect(&context), b"x"),
                None => assert_eq!(names(&store, None).await, ["later"], "{context}"),
            }
            if limited.is_ok() {
                break;
            }
        }
        assert!(failures > 0, "{name} opens files");
    }
}

async fn put(store: &DurableStore, location: &str, mode: PutMode) -> Result<()> {
    store.put_opts(&path(location), "x".into(), mode.into()).await.map(drop)
}

async fn upload(store: &DurableStore, location: &str) -> Result<()> {
    let mut upload = store.put_multipart(&path(location)).await?;
    upload.put_part("x".into()).await?;
    upload.complete().await.map(drop)
}

/// Goal: the bytes of a failed write do not take the disk space of the next one.
#[tokio::test]
async fn a_full_disk_leaves_no_rubbish() {
    let disk = SimDisk::new();
    let store = in_memory(&disk);
    store.recover().expect("a recovery");
    disk.set_capacity_bytes(100);
    let root = FilePath::new("/data/table");
    for chunks in [vec![101], vec![60, 41]] {
        let payload: PutPayload = chunks.iter().map(|len| Bytes::from(vec![1; *len])).collect();
        for mode in [PutMode::Create, PutMode::Overwrite] {
            let put = store.put_opts(&path("a"), payload.clone(), mode.into()).await;
            put.expect_err("no room");
            assert_eq!(disk.list(root).expect("a listing"), [], "{chunks:?}");
        }
    }
    store.put(&path("a"), vec![1; 100].into()).await.expect("room, and nothing in it");
    disk.refuse_names(true);
    store.copy(&path("a"), &path("b")).await.expect_err("no name can be given");
    disk.refuse_names(false);
    assert_eq!(disk.list(root).expect("a listing").len(), 1, "the object alone");
}
