//! Modules of a crate: their files, the items that they declare, the names that they import and the paths that they use.

use super::tokens::{Token, tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of a `src` folder that a crate can start with.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];
/// Imports followed one after the other before a path is given up.
const FOLLOWED_MAX: usize = 16;
/// Keywords before the name of an item.
const ITEMS: [&str; 9] = ["struct", "enum", "union", "trait", "type", "fn", "const", "static", "macro_rules"];
/// The items among them that are types.
const TYPES: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// One library or program.
pub(super) struct Crate {
    /// Names of the files, relative to the workspace's root.
    pub(super) files: Vec<String>,
    /// The first is the root.
    pub(super) modules: Vec<Module>,
}

/// One module: a file, or a part of a file in braces.
#[derive(Default)]
pub(super) struct Module {
    /// Index in `Crate::files`.
    pub(super) file: usize,
    parent: usize,
    children: BTreeMap<String, usize>,
    imports: Vec<Import>,
    declared: BTreeSet<String>,
    /// Paths of two or more segments outside of `use`.
    pub(super) paths: Vec<Vec<String>>,
    /// All words outside of `use`.
    words: BTreeSet<String>,
    /// Types with `pub` (true) or `pub(crate)`.
    pub(super) types: Vec<(String, bool)>,
}

/// A path of a `use`, and the name that it has in this module; `*` for all names of a module.
struct Import {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

/// From where an item can be named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Its module.
    Own,
    /// A part of the crate: `pub(super)`, `pub(in …)`.
    Part,
    Crate,
    /// Other crates too, if its module can be.
    All,
}

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// An item of the module with this index.
    Item(usize),
}

impl Crate {
    /// Reads the crates that start in a folder: a library, a program, or both.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or if a module has no file.
    pub(super) fn read(root: &Path, source: &Path) -> Result<Vec<Self>, String> {
        let starts = ROOTS.iter().map(|name| source.join(name)).filter(|path| path.is_file());
        starts.map(|start| Self::read_from(root, &start)).collect()
    }

    fn read_from(root: &Path, start: &Path) -> Result<Self, String> {
        let mut made = Self { files: Vec::new(), modules: vec![Module::default()] };
        let mut open = vec![(start.to_owned(), 0)];
        while let Some((path, module)) = open.pop() {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            made.files.push(path.strip_prefix(root).unwrap_or(&path).display().to_string());
            made.modules[module].file = made.files.len() - 1;
            let tokens = tokens(&text);
            let mut reader = Reader { made: &mut made, tokens: &tokens, at: 0, outside: Vec::new() };
            reader.read(module);
            for (module, names) in reader.outside {
                open.push((file_of(&path, &names)?, module));
            }
        }
        Ok(made)
    }

    /// The files that a module uses, each with the item used. A part of a module uses what the files above it declare, as
    /// these use their parts: a folder is one unit for the files beside it, so such uses are left out.
    pub(super) fn uses(&self, module: usize) -> Vec<(usize, &str)> {
        let own = &self.modules[module];
        let above = self.above(module);
        // A re-export alone uses nothing; a table of contents is no part of a circle.
        let is_used = |import: &&Import| !import.is_public || own.words.contains(&import.name);
        let (all_names, imported): (Vec<_>, Vec<_>) = own.imports.iter().partition(|import| import.name == "*");
        let wholes = all_names.into_iter().filter(|import| !import.is_public).filter_map(|import| {
            match self.resolve(module, &import.path, FOLLOWED_MAX)? {
                Target::Module(found) | Target::Item(found) => Some((self.modules[found].file, "*")),
            }
        });
        let imported = imported.into_iter().filter(is_used).map(|import| &import.path);
        let paths = imported.chain(&own.paths).filter_map(|path| {
            // A module that is only imported is not used: the paths that begin with it say what is.
            (1..=path.len()).find_map(|length| match self.resolve(module, &path[..length], FOLLOWED_MAX)? {
                Target::Item(found) => Some((self.modules[found].file, path[length - 1].as_str())),
                Target::Module(_) => None,
            })
        });
        wholes.chain(paths).filter(|(file, _)| !above.contains(file)).collect()
    }

    /// The files of a module and of those that it is a part of.
    fn above(&self, mut module: usize) -> Vec<usize> {
        let mut files = vec![self.modules[module].file];
        while module != 0 {
            module = self.modules[module].parent;
            files.push(self.modules[module].file);
        }
        files
    }

    fn resolve(&self, from: usize, path: &[String], followed_max: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent),
            name if followed_max > 0 => self.lookup(from, name, followed_max, false)?,
            _ => return None,
        };
        rest.iter().try_fold(start, |found, segment| match found {
            Target::Module(module) => match segment.as_str() {
                "super" => Some(Target::Module(self.modules[module].parent)),
                "self" => Some(found),
                name => self.lookup(module, name, followed_max, true),
            },
            // A variant, or an associated item.
            item @ Target::Item(_) => Some(item),
        })
    }

    /// A name in a module. `is_inside` says that the module was named before it: then an unknown name is an item there, for
    /// macros declare items too. Otherwise it is another crate's, a local type or a primitive.
    fn lookup(&self, module: usize, name: &str, followed_max: usize, is_inside: bool) -> Option<Target> {
        let own = &self.modules[module];
        if let Some(child) = own.children.get(name) {
            return Some(Target::Module(*child));
        }
        let followed_max = followed_max.checked_sub(1)?;
        if let Some(import) = own.imports.iter().find(|import| import.name == name) {
            // The name of another crate, imported by itself.
            let names_itself = import.path.len() == 1 && import.path[0] == name;
            return if names_itself { None } else { self.resolve(module, &import.path, followed_max) };
        }
        // Methods are among the declared names, so imports go first.
        if own.declared.contains(name) {
            return Some(Target::Item(module));
        }
        let globs = own.imports.iter().filter(|import| import.name == "*");
        for glob in globs {
            if let Some(Target::Module(source)) = self.resolve(module, &glob.path, followed_max)
                && let Some(found) = self.lookup(source, name, followed_max, false)
            {
                return Some(found);
            }
        }
        is_inside.then_some(Target::Item(module))
    }
}

/// The file of a module that is declared in `parent`, inside of these modules in braces; the last name is its own.
fn file_of(parent: &Path, names: &[String]) -> Result<PathBuf, String> {
    let stem = parent.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let mut folder = parent.with_file_name("");
    if !matches!(stem, "mod" | "lib" | "main") {
        folder.push(stem);
    }
    folder.extend(names);
    let candidates = [folder.with_extension("rs"), folder.join("mod.rs")];
    let found = candidates.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| format!("{}: no file for the module `{}`", parent.display(), names.join("::")))
}

/// Goes through the tokens of one file.
struct Reader<'a> {
    made: &'a mut Crate,
    tokens: &'a [Token<'a>],
    at: usize,
    /// Modules with a file of their own, with the names of the modules in braces around them and their own.
    outside: Vec<(usize, Vec<String>)>,
}

impl<'a> Reader<'a> {
    /// Reads a file, whose module is this one.
    fn read(&mut self, module: usize) {
        // Modules in braces, outermost first: index, name, and open braces inside.
        let mut stack = vec![(module, String::new(), 0usize)];
        let mut scope = Scope::Own;
        while let Some(token) = self.next() {
            let (module, depth) = stack.last().map_or((module, 0), |(module, _, depth)| (*module, *depth));
            let top = stack.len() - 1;
            match token {
                Token::Sign('#') if self.is_test() => self.skip_item(),
                Token::Sign('{') => stack[top].2 += 1,
                Token::Sign('}') if depth == 0 && top > 0 => drop(stack.pop()),
                Token::Sign('}') => stack[top].2 = depth.saturating_sub(1),
                Token::Word("mod") => {
                    let Some(Token::Word(name)) = self.next() else { continue };
                    let child = self.add_child(module, name);
                    if self.next() == Some(Token::Sign('{')) {
                        stack.push((child, name.to_owned(), 0));
                    } else {
                        let around = stack.iter().skip(1).map(|(_, name, _)| name.clone());
                        self.outside.push((child, around.chain([name.to_owned()]).collect()));
                    }
                }
                Token::Word("use") => self.import(module, scope != Scope::Own),
                Token::Word("pub") => {
                    scope = self.scope();
                    continue;
                }
                Token::Word(word) => self.word(module, word, scope),
                _ => {}
            }
            scope = Scope::Own;
        }
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at).copied();
        self.at += 1;
        token
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    /// Whether the attribute behind the `#` is `[cfg(test)]` or `[cfg(all(test, …))]`.
    fn is_test(&self) -> bool {
        let words = self.tokens[self.at..].iter().take_while(|token| **token != Token::Sign(']'));
        let words = words.filter_map(|token| if let Token::Word(word) = token { Some(*word) } else { None });
        let words: Vec<&str> = words.take(3).collect();
        words.starts_with(&["cfg", "test"]) || words.starts_with(&["cfg", "all", "test"])
    }

    /// Skips an item from its first attribute to its `;` or its closing brace; a field or a variant to its comma.
    fn skip_item(&mut self) {
        let mut depth = 0usize;
        let mut is_field = true;
        while let Some(token) = self.peek() {
            match token {
                Token::Word(word) if ITEMS.contains(&word) || word == "impl" || word == "use" => is_field = false,
                Token::Sign('(' | '[' | '{') => depth += 1,
                // The item was the last of its braces.
                Token::Sign('}') if depth == 0 => return,
                Token::Sign(')' | ']') => depth = depth.saturating_sub(1),
                Token::Sign('}') => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return;
                    }
                }
                Token::Sign(sign) if depth == 0 && (sign == ';' || (sign == ',' && is_field)) => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// The scope of an item behind its `pub`.
    fn scope(&mut self) -> Scope {
        if self.peek() != Some(Token::Sign('(')) {
            return Scope::All;
        }
        let is_crate = self.tokens.get(self.at + 1) == Some(&Token::Word("crate"));
        while self.next().is_some_and(|token| token != Token::Sign(')')) {}
        if is_crate { Scope::Crate } else { Scope::Part }
    }

    fn add_child(&mut self, parent: usize, name: &str) -> usize {
        let child = self.made.modules.len();
        let file = self.made.modules[parent].file;
        self.made.modules.push(Module { file, parent, ..Module::default() });
        self.made.modules[parent].children.insert(name.to_owned(), child);
        child
    }

    /// A word outside of `use`: the keyword of an item, or a name, with which a path may begin.
    fn word(&mut self, module: usize, word: &'a str, scope: Scope) {
        let own = &mut self.made.modules[module];
        own.words.insert(word.to_owned());
        if ITEMS.contains(&word) {
            if let Some(Token::Word(name)) = self.tokens.get(self.at).copied() {
                own.declared.insert(name.to_owned());
                if matches!(scope, Scope::All | Scope::Crate) && TYPES.contains(&word) {
                    own.types.push((name.to_owned(), scope == Scope::All));
                }
            }
            return;
        }
        let mut path = vec![word.to_owned()];
        while self.peek() == Some(Token::Colons) {
            let Some(Token::Word(segment)) = self.tokens.get(self.at + 1).copied() else { break };
            path.push(segment.to_owned());
            self.at += 2;
        }
        if path.len() > 1 {
            self.made.modules[module].paths.push(path);
        }
    }

    /// The tree of a `use`, up to its `;`.
    fn import(&mut self, module: usize, is_public: bool) {
        // Lengths of the path before each open brace.
        let mut open = Vec::new();
        let mut path: Vec<String> = Vec::new();
        let mut name = None;
        while let Some(token) = self.next() {
            match token {
                Token::Word("as") => {
                    if let Some(Token::Word(given)) = self.next() {
                        name = Some(given.to_owned());
                    }
                }
                Token::Word(segment) => path.push(segment.to_owned()),
                Token::Sign('*') => name = Some("*".to_owned()),
                Token::Sign('{') => open.push(path.len()),
                Token::Sign(',' | '}' | ';') => {
                    if path.len() > open.last().copied().unwrap_or(0) || name.is_some() {
                        self.add_import(module, &path, name.take(), is_public);
                    }
                    if token == Token::Sign('}') {
                        open.pop();
                    }
                    path.truncate(open.last().copied().unwrap_or(0));
                    if token == Token::Sign(';') {
                        return;
                    }
                }
                _ => {}
            }
        }
    }

    fn add_import(&mut self, module: usize, path: &[String], name: Option<String>, is_public: bool) {
        let mut path = path.to_vec();
        // `a::{self, b}` names `a`.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let Some(name) = name.or_else(|| path.last().cloned()) else { return };
        self.made.modules[module].imports.push(Import { path, name, is_public });
    }
}
