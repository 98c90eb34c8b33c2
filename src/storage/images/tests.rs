//! Images over stores that work, that fail at random, and that lose or damage what they have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::faulty_store::FaultyStore;
use crate::images::error::ImagesError;
use crate::images::prune::Pruned;
use crate::images::upload::Put;
use crate::images::{FILES, ImageName, Images, LocalFile};

/// More than two parts of an upload.
const LARGE_BYTES: usize = (17 << 20) + 5;

type Contents = BTreeMap<String, Vec<u8>>;

fn images() -> (Arc<dyn ObjectStore>, Images) {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    (Arc::clone(&objects), Images::new(objects, Path::from("shards/0000/identity")))
}

/// A directory with these files.
fn directory(contents: &Contents) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, contents) in contents {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    directory
}

fn read(directory: &FilePath) -> Contents {
    let (mut found, mut open) = (Contents::new(), vec![directory.to_path_buf()]);
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

/// Files under `tables` are immutable.
fn local(contents: &Contents) -> Vec<LocalFile> {
    let file = |(path, contents): (&String, &Vec<u8>)| LocalFile {
        path: path.clone(),
        bytes: contents.len().try_into().unwrap(),
        is_immutable: path.starts_with("tables/"),
    };
    contents.iter().map(file).collect()
}

async fn put(images: &Images, contents: &Contents, sequence: u64) -> Result<Put, ImagesError> {
    images.put(directory(contents).path(), &local(contents), sequence).await
}

async fn restored(images: &Images, name: &ImageName) -> Result<Contents, ImagesError> {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("restored");
    images.restore(name, &target, None).await?;
    Ok(read(&target))
}

fn contents(files: &[(&str, &str)]) -> Contents {
    files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
}

async fn files_of(objects: &Arc<dyn ObjectStore>) -> Vec<Path> {
    let all: Vec<_> =
        objects.list(None).map_ok(|object| object.location).try_collect().await.unwrap();
    all.into_iter().filter(|path| path.as_ref().contains(&format!("/{FILES}/"))).collect()
}

#[tokio::test]
async fn an_image_is_restored_and_the_next_one_sends_what_is_new() {
    let (objects, images) = images();
    assert_eq!(images.list().await.unwrap(), []);
    let large: Vec<u8> = (0..LARGE_BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let mut all =
        contents(&[("current", "1"), ("empty", ""), ("tables/1", "a"), ("tables/2", "a")]);
    all.insert("tables/deep/large".to_owned(), large);
    let first = put(&images, &all, 7).await.unwrap();
    assert_eq!((first.files, first.name.sequence), (4, 7), "two of them have the same contents");
    assert_eq!(first.bytes, u64::try_from(LARGE_BYTES).unwrap() + 2);
    assert_eq!(restored(&images, &first.name).await.unwrap(), all);
    let before = all.clone();
    all.insert("current".to_owned(), b"2".to_vec());
    all.insert("tables/3".to_owned(), b"new".to_vec());
    all.remove("tables/1");
    let second = put(&images, &all, 12).await.unwrap();
    assert_eq!((second.files, second.bytes), (2, 4));
    // What the store has is known to another process as well.
    let other = Images::new(Arc::clone(&objects), images.prefix().clone());
    let third = put(&other, &all, 100).await.unwrap();
    assert_eq!((third.files, third.bytes), (0, 0));
    let names = [&third.name, &second.name, &first.name].map(Clone::clone);
    assert_eq!(images.list().await.unwrap(), names);
    assert_eq!(images.list_whole(2).await.unwrap(), names[..2]);
    for (name, expected) in names.iter().zip([&all, &all, &before]) {
        assert_eq!(&restored(&images, name).await.unwrap(), expected);
    }
    let keys: Vec<Path> =
        objects.list(None).map_ok(|object| object.location).try_collect().await.unwrap();
    let manifests = keys.iter().filter(|key| key.as_ref().ends_with(".json"));
    let manifests: Vec<&str> = manifests.map(Path::as_ref).collect();
    assert!(
        manifests[0].starts_with("shards/0000/identity/00000000000000000007-"),
        "{manifests:?}"
    );
}

/// Goal: an immutable file is read once, and one with the same name and other contents again.
#[tokio::test]
async fn immutable_files_are_read_once() {
    let (_, images) = images();
    let all = contents(&[("tables/1", "a"), ("journal", "a")]);
    let (directory, files) = (directory(&all), local(&all));
    images.put(directory.path(), &files, 1).await.unwrap();
    let write = |path: &str, time: Option<SystemTime>| {
        let path = directory.path().join(path);
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "b").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(time.unwrap_or(before)).unwrap();
    };
    write("tables/1", None);
    let second = images.put(directory.path(), &files, 2).await.unwrap();
    assert_eq!(second.files, 0, "it was not read");
    assert_eq!(restored(&images, &second.name).await.unwrap(), all);
    write("journal", None);
    let third = images.put(directory.path(), &files, 3).await.unwrap();
    assert_eq!(third.files, 1, "it is not immutable");
    write("tables/1", Some(SystemTime::UNIX_EPOCH));
    let fourth = images.put(directory.path(), &files, 4).await.unwrap();
    assert_eq!(fourth.files, 0, "its contents are there");
    let expected = contents(&[("tables/1", "b"), ("journal", "b")]);
    assert_eq!(restored(&images, &fourth.name).await.unwrap(), expected);
    fs::write(directory.path().join("journal"), "longer").unwrap();
    let changed = images.put(directory.path(), &files, 5).await;
    assert!(matches!(changed, Err(ImagesError::Changed { .. })), "{changed:?}");
}

/// Goal: every manifest in the store is that of an image that can be restored, whatever requests and answers are lost and
/// whatever arrives late. Method: images of a directory that changes, each attempt with a sequence of its own.
#[tokio::test]
async fn whatever_the_store_loses_images_are_whole() {
    let (mut faults, mut made) = (0, 0);
    for seed in 0..10 {
        let mut random = StdRng::seed_from_u64(seed);
        let faulty = Arc::new(FaultyStore::default());
        let images = Images::new(Arc::clone(&faulty) as _, Path::from("identity"));
        faulty.fail_at_random(seed, 6);
        let (mut all, mut attempts) = (Contents::new(), BTreeMap::new());
        for sequence in 1..25 {
            for _ in 0..3 {
                let (file, text) = (random.random_range(0..8), random.random_range(0..100));
                all.insert(format!("files/{file}"), format!("{file} {text}").into_bytes());
            }
            attempts.insert(sequence, all.clone());
            match put(&images, &all, sequence).await {
                Ok(put) => {
                    made += 1;
                    let whole = restored(&images, &put.name).await;
                    assert!(
                        whole.as_ref().is_ok_and(|found| *found == all) || is_away(&whole),
                        "{whole:?}"
                    );
                }
                other => assert!(is_away(&other), "seed {seed}: {other:?}"),
            }
            if random.random_bool(0.3) {
                let pruned = images.prune(3, &BTreeSet::new()).await;
                assert!(pruned.is_ok() || is_away(&pruned), "{pruned:?}");
            }
        }
        faults += faulty.recover().await;
        let names = images.list().await.unwrap();
        assert!(!names.is_empty(), "seed {seed}");
        assert_eq!(images.list_whole(usize::MAX).await.unwrap(), names, "seed {seed}");
        for name in names {
            let found = restored(&images, &name).await.unwrap();
            assert_eq!(found, attempts[&name.sequence], "seed {seed}: {name}");
        }
    }
    assert!(faults > 80 && made > 50, "{faults} faults, {made} images");
}

fn is_away<T>(result: &Result<T, ImagesError>) -> bool {
    matches!(result, Err(ImagesError::Store(_)))
}

/// Goal: damage of any object is noticed, and costs the images with that object. The next image is whole where the loss can
/// be seen.
#[tokio::test]
async fn damage_is_found() {
    let (older, newer) =
        (contents(&[("a", "old"), ("b", "same")]), contents(&[("a", "new"), ("b", "same")]));
    // What is done to which object, and what is said; none where the image stays whole.
    type Damage = (&'static str, Option<&'static str>, Option<&'static str>);
    let cases: [Damage; 6] = [
        ("new", None, Some("not in the object store")),
        ("new", Some("bad"), Some("other contents")),
        ("new", Some("longer"), Some("other contents")),
        ("manifest", Some("{"), Some("is no manifest")),
        ("manifest", Some(r#"{"format":1,"sequence":1,"files":[]}"#), Some("is of record 1")),
        ("old", None, None),
    ];
    for (what, text, said) in cases {
        let (objects, images) = images();
        let first = put(&images, &older, 1).await.unwrap().name;
        let second = put(&images, &newer, 2).await.unwrap().name;
        let path = match what {
            "manifest" => images.manifest_path(&second),
            text => {
                let manifest = images.manifest(if text == "old" { &first } else { &second }).await;
                let files = manifest.unwrap().files;
                images.file_path(&files.iter().find(|file| file.path == "a").unwrap().sha256)
            }
        };
        match text {
            Some(text) => drop(objects.put(&path, text.as_bytes().to_vec().into()).await.unwrap()),
            None => objects.delete(&path).await.unwrap(),
        }
        let found = restored(&images, &second).await;
        match (said, found) {
            (None, found) => assert_eq!(found.unwrap(), newer, "{what}"),
            (Some(said), Err(error)) => {
                assert!(error.is_damage() && error.to_string().contains(said), "{error}");
                assert_eq!(restored(&images, &first).await.unwrap(), older);
            }
            (Some(_), Ok(_)) => panic!("{what} {text:?}: it was restored"),
        }
        // Contents of the same size are found by who reads them.
        let whole = images.list_whole(5).await.unwrap();
        let is_seen = said.is_some() && text != Some("bad");
        assert_eq!(whole.contains(&second), !is_seen, "{what} {text:?}");
        if text != Some("bad") {
            let third = put(&images, &newer, 3).await.unwrap();
            assert_eq!(restored(&images, &third.name).await.unwrap(), newer, "{what} {text:?}");
        }
    }
}

#[tokio::test]
async fn old_images_are_removed() {
    let (objects, images) = images();
    let image =
        |sequence: u64| contents(&[("shared", "shared"), ("own", &format!("own {sequence}"))]);
    let mut names = Vec::new();
    for sequence in 1..=6 {
        names.push(put(&images, &image(sequence), sequence).await.unwrap().name);
    }
    assert_eq!(files_of(&objects).await.len(), 7);
    let none = BTreeSet::new();
    let pruned = images.prune(5, &none).await.unwrap();
    assert_eq!(pruned, Pruned { images: 1, files: 0 }, "young files may be of an image on its way");
    let now = Duration::ZERO;
    let pruned = images.prune_older(3, &BTreeSet::from([2]), now).await.unwrap();
    assert_eq!(pruned, Pruned { images: 1, files: 2 });
    let left: Vec<ImageName> = [5, 4, 3, 1].map(|at: usize| names[at].clone()).to_vec();
    assert_eq!(images.list().await.unwrap(), left);
    for name in &left {
        assert_eq!(restored(&images, name).await.unwrap(), image(name.sequence));
    }
    // One that cannot be read counts for nothing, and nothing of it is removed before it has become old.
    objects.put(&images.manifest_path(&names[5]), "{".into()).await.unwrap();
    let pruned = images.prune_older(2, &none, now).await.unwrap();
    assert_eq!(pruned, Pruned { images: 1, files: 0 });
    assert_eq!(images.list().await.unwrap(), left[..3]);
    for sequence in 7..=8 {
        put(&images, &image(sequence), sequence).await.unwrap();
    }
    let pruned = images.prune_older(2, &none, now).await.unwrap();
    assert_eq!(pruned, Pruned { images: 3, files: 4 });
    assert_eq!(files_of(&objects).await.len(), 3);
    let again = images.prune_older(2, &none, now).await.unwrap();
    assert_eq!(again, Pruned::default());
}

#[tokio::test]
async fn a_cache_holds_the_newest_image() {
    let (objects, images) = images();
    let place = tempfile::tempdir().unwrap();
    let cache = place.path().join("cache");
    assert_eq!(images.prefetch(&cache).await.unwrap().sequence, None);
    let first = contents(&[("a", "one"), ("deep/b", "two"), ("deep/c", "two"), ("d", "")]);
    put(&images, &first, 1).await.unwrap();
    let fetched = images.prefetch(&cache).await.unwrap();
    assert_eq!((fetched.sequence, fetched.bytes), (Some(1), 6));
    assert_eq!(images.prefetch(&cache).await.unwrap().bytes, 0);
    let second = contents(&[("a", "three"), ("deep/b", "two"), ("deep/c", "two"), ("d", "")]);
    let name = put(&images, &second, 2).await.unwrap().name;
    fs::write(cache.join("x.part"), "left").unwrap();
    assert_eq!(images.prefetch(&cache).await.unwrap().bytes, 5);
    assert_eq!(read(&cache).len(), 3, "nothing else is there");
    // A file that is not whole is read from the store.
    let hash = images.manifest(&name).await.unwrap().files[0].sha256.clone();
    fs::write(cache.join(&hash), "thr").unwrap();
    let into = place.path().join("into");
    images.restore(&name, &into, Some(&cache)).await.unwrap();
    assert_eq!(read(&into), second);
    assert_eq!(read(&cache).len(), 2, "one was moved, and one has several places");
    // Without the store, with all files in the cache.
    let third = contents(&[("a", "three"), ("deep/b", "two"), ("c", "two")]);
    let name = put(&images, &third, 3).await.unwrap().name;
    images.prefetch(&cache).await.unwrap();
    for file in files_of(&objects).await {
        objects.delete(&file).await.unwrap();
    }
    let into = place.path().join("again");
    images.restore(&name, &into, Some(&cache)).await.unwrap();
    assert_eq!(read(&into), third);
    assert!(images.prefetch(&cache).await.unwrap_err().is_damage());
}
