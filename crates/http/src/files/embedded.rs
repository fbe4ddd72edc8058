//! Files that are part of the program.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::cache::Lookup;
use super::encoding::{Accepts, Coding};
use super::media::Media;
use super::representation::{Content, Representation};
use super::{FileMiss, Options};

/// Names and contents.
type List = &'static [(&'static str, &'static [u8])];

/// Embedded files of a list, with their representations.
#[derive(Debug)]
pub(super) struct Embedded {
    list: List,
    files: HashMap<&'static str, [Option<Arc<Representation>>; Coding::COUNT]>,
}

impl Embedded {
    pub(super) fn new(list: List, options: Options) -> Embedded {
        let bytes_of = |wanted: &str| list.iter().find(|(name, _)| *name == wanted).map(|(_, bytes)| *bytes);
        let files = list.iter().map(|(name, bytes)| {
            let media = Media::of(name);
            let form = |coding: Coding, bytes: &'static [u8]| {
                let of = (*name, media, options);
                let tag = (tag_of(bytes), None);
                let content = Content::Static(bytes);
                Arc::new(Representation::new(of, coding, content, bytes.len() as u64, (&tag.0, tag.1)))
            };
            let mut forms = [const { None }; Coding::COUNT];
            forms[Coding::Identity as usize] = Some(form(Coding::Identity, bytes));
            for coding in Coding::SIBLINGS.into_iter().filter(|_| media.is_compressible) {
                let sibling = bytes_of(&format!("{name}{}", coding.suffix()));
                forms[coding as usize] = sibling.map(|bytes| form(coding, bytes));
            }
            (*name, forms)
        });
        Embedded { list, files: files.collect() }
    }

    /// The same with other options.
    pub(super) fn with(&self, options: Options) -> Embedded {
        Embedded::new(self.list, options)
    }

    /// The file of this name, in the best accepted coding.
    pub(super) fn find(&self, name: &str, accepts: Accepts) -> Result<Lookup, FileMiss> {
        let Some(forms) = self.files.get(name) else {
            return if self.is_folder(name) { Ok(Lookup::Folder) } else { Err(FileMiss::NotFound) };
        };
        let mut codings = accepts.before_plain().chain([Coding::Identity]);
        let file = codings.find_map(|coding| forms[coding as usize].clone());
        file.map(Lookup::File).ok_or(FileMiss::NotFound)
    }

    fn is_folder(&self, name: &str) -> bool {
        self.list.iter().any(|(known, _)| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('/')))
    }
}

/// The entity tag of some bytes, without quotes. It is compared only with tags of this program or of another version of it, so
/// the hash need not be cryptographic.
fn tag_of(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
