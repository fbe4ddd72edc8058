//! The disks: files of a directory, and files in memory.

use std::io;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use store::disk::{Access, Disk, MemoryDisk, SystemDisk};

fn disk() -> (tempfile::TempDir, SystemDisk) {
    let directory = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new(directory.path()).unwrap();
    (directory, disk)
}

#[test]
fn a_second_lock_of_the_same_directory_is_refused_until_the_first_is_dropped() {
    let (_directory, disk) = disk();
    let lock = disk.lock("lock").unwrap();
    assert_eq!(disk.lock("lock").err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
    drop(lock);
    disk.lock("lock").unwrap();
}

#[test]
fn a_fifo_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    let (directory, disk) = disk();
    mknodat(CWD, directory.path().join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let errors =
        [disk.open("fifo", true, Access::Buffered).err(), disk.lock("fifo").err(), disk.lock_file("fifo").err()];
    for error in errors {
        assert_eq!(error.expect("refused").to_string(), "it is no regular file");
    }
}

#[test]
fn a_file_is_locked_by_itself_and_not_made_for_it() {
    let (directory, disk) = disk();
    assert!(disk.lock_file("tree").unwrap().is_none());
    assert_eq!(disk.list().unwrap(), [""; 0]);
    std::fs::write(directory.path().join("tree"), b"pages").unwrap();
    let lock = disk.lock_file("tree").unwrap();
    assert!(lock.is_some());
    assert_eq!(disk.lock_file("tree").err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
    drop(lock);
    assert!(disk.lock_file("tree").unwrap().is_some());
}

#[test]
fn a_moved_directory_is_worked_in_where_it_is_and_the_one_at_its_old_path_is_not_touched() {
    let above = tempfile::tempdir().unwrap();
    let (path, moved) = (above.path().join("mk"), above.path().join("mk.old"));
    let disk = SystemDisk::new(&path).unwrap();
    disk.open("kept", true, Access::Buffered).unwrap().write_all_at(b"ours", 0).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("kept"), b"another's").unwrap();
    std::fs::write(path.join("a"), b"another's").unwrap();
    let mut bytes = [0; 4];
    disk.open("kept", false, Access::ReadOnly).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"ours");
    for name in ["a", "b", "c"] {
        disk.open(name, true, Access::Buffered).unwrap();
    }
    disk.rename("b", "d").unwrap();
    disk.remove("c").unwrap();
    disk.sync_dir().unwrap();
    let _lock = disk.lock("lock").unwrap();
    assert!(disk.lock_file("kept").unwrap().is_some() && disk.free_bytes().unwrap().is_some());
    let mut names = disk.list().unwrap();
    names.sort();
    assert_eq!(names, ["a", "d", "kept", "lock"]);
    let at_rest = |folder: &Path| {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(at_rest(&moved), names);
    assert_eq!(at_rest(&path), ["a", "kept"]);
    assert_eq!(std::fs::read(path.join("a")).unwrap(), b"another's");
}

#[test]
fn reading_past_the_end_is_an_error_not_a_short_buffer() {
    let (_directory, disk) = disk();
    let file = disk.open("a", true, Access::Buffered).unwrap();
    file.write_all_at(b"abc", 0).unwrap();
    let mut buffer = [0; 4];
    assert_eq!(file.read_exact_at(&mut buffer, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn names_change_and_one_at_a_time_has_the_directory() {
    let disk = MemoryDisk::new(1);
    disk.open("a", true, Access::Buffered).unwrap();
    disk.rename("a", "b").unwrap();
    assert_eq!(disk.list().unwrap(), ["b"]);
    let lock = disk.lock("lock").unwrap();
    assert!(disk.lock("lock").is_err());
    drop(lock);
    assert!(disk.lock("lock").is_ok());
    disk.remove("b").unwrap();
    assert!(disk.list().unwrap().is_empty());
}
