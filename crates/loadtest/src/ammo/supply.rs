//! Passes through the ammo, optionally shuffled, as the engine's source of requests.

use super::error::{AmmoError, AmmoPlace};
use super::format::Format;
use super::input::{Input, KEPT_BYTES_MAX, Reader};
use super::pass::{Item, OnBroken, Pass};
use super::per_line::PerLine;
use super::request::Defaults;
use super::shuffle::Window;
use super::tag::Tags;
use super::template::{Values, has_random_placeholder};
use super::{Records, SkippedRecords, access_log, har, json_line, ndjson, phantom, tank, url_list, vegeta};
use crate::answers::{AnswerLines, Comparison};
use crate::source::{Described, RequestSource, SourceError, TagNames};
use std::io::BufRead;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

/// How often the ammo is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loops {
    /// As often as the run needs. A long standard input is read once.
    #[default]
    Endless,
    /// This many times; then the run ends, even if its profile is longer.
    Times(NonZeroU64),
}

/// Options of reading ammo.
#[derive(Clone, Debug, Default)]
pub struct AmmoOptions {
    /// The format. `None`: it is detected from the content.
    pub format: Option<Format>,
    /// How often the ammo is read.
    pub loops: Loops,
    /// The seed of a random order. `None`: the ammo's own order.
    pub shuffle: Option<u64>,
    /// The seed of templates.
    pub seed: u64,
    /// Handling of a broken record.
    pub on_broken: OnBroken,
    /// `Host` and further header fields.
    pub defaults: Defaults,
}

/// Open ammo.
pub struct Ammo {
    input: Input,
    format: Format,
    options: AmmoOptions,
    answers: Option<(Input, Arc<Comparison>)>,
    counts: Arc<SkippedRecords>,
    values: Values,
    tags: Tags,
    pass: Option<Pass>,
    passes_begun: u64,
    /// Requests of the current pass.
    pass_requests: u64,
    /// Whether a pass has ended and its window must be emptied before the next one begins.
    pass_ended: bool,
    window: Option<Window<Item>>,
    item: Item,
    /// Number of the next request.
    index: u64,
    constant: Option<(Vec<u8>, Described)>,
}

/// Result of reading on.
enum Step {
    /// The item is the next request.
    Request,
    /// A pass has ended; the next call begins another one.
    PassEnd,
    /// There are no more passes.
    End,
}

impl Ammo {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path, options: AmmoOptions) -> Result<Ammo, AmmoError> {
        Ammo::of_input(Input::open(path)?, None, options)
    }

    /// Opens ammo and its answers, which are expected in the same order. Differences are collected in
    /// `comparison`.
    pub fn open_with_answers(
        path: &Path,
        answers: &Path,
        comparison: Arc<Comparison>,
        options: AmmoOptions,
    ) -> Result<Ammo, AmmoError> {
        Ammo::of_input(Input::open(path)?, Some((Input::open(answers)?, comparison)), options)
    }

    /// Ammo, and perhaps answers, from streams of the calling program. Each has a name for errors.
    pub fn of_streams(
        ammo: (&str, Box<dyn BufRead + Send>),
        answers: Option<(&str, Box<dyn BufRead + Send>, Arc<Comparison>)>,
        options: AmmoOptions,
    ) -> Result<Ammo, AmmoError> {
        let answers = match answers {
            Some((name, stream, comparison)) => Some((Input::of_stream(name, stream)?, comparison)),
            None => None,
        };
        Ammo::of_input(Input::of_stream(ammo.0, ammo.1)?, answers, options)
    }

    fn of_input(
        input: Input,
        answers: Option<(Input, Arc<Comparison>)>,
        options: AmmoOptions,
    ) -> Result<Ammo, AmmoError> {
        let format = match options.format {
            Some(format) => format,
            None => Format::found(input.name(), input.beginning())?,
        };
        let mut ammo = Ammo {
            values: Values::new(options.seed),
            window: options.shuffle.map(Window::new),
            input,
            format,
            options,
            answers,
            counts: Arc::default(),
            tags: Tags::default(),
            pass: None,
            passes_begun: 0,
            pass_requests: 0,
            pass_ended: false,
            item: Item::default(),
            index: 0,
            constant: None,
        };
        if matches!(ammo.options.loops, Loops::Times(times) if times.get() > 1) {
            ammo.check_repeatable()?;
        }
        ammo.constant = ammo.find_constant();
        Ok(ammo)
    }

    fn check_repeatable(&self) -> Result<(), AmmoError> {
        let mut inputs = std::iter::once(&self.input).chain(self.answers.as_ref().map(|(answers, _)| answers));
        match inputs.find(|input| !input.is_repeatable()) {
            None => Ok(()),
            Some(input) => Err(AmmoError::input(
                input.name(),
                AmmoPlace::Whole,
                format!(
                    "more than {} MB of a stream are read once: put them into a file to repeat them",
                    KEPT_BYTES_MAX >> 20
                ),
            )),
        }
    }

    /// Whether all requests are the same.
    pub(crate) fn is_constant(&self) -> bool {
        self.constant.is_some()
    }

    /// Whether requests may hold random values; assumed of an input that is not kept whole.
    pub(crate) fn may_be_random(&self) -> bool {
        self.format.has_templates() && (!self.input.is_whole() || has_random_placeholder(self.input.beginning()))
    }

    /// Counters of skipped records; they grow while the ammo is read.
    pub fn counts(&self) -> Arc<SkippedRecords> {
        Arc::clone(&self.counts)
    }

    /// The format in which the ammo is read.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Number of passes that have begun.
    pub(crate) fn passes_begun(&self) -> u64 {
        self.passes_begun
    }

    /// The next request, with its expected answer. `None` at the end.
    pub(crate) fn next_item(&mut self) -> Result<Option<&mut Item>, AmmoError> {
        let more = match self.window.take() {
            Some(mut window) => {
                let more = self.next_shuffled(&mut window);
                self.window = Some(window);
                more
            }
            None => self.next_in_order(),
        };
        Ok(more?.then_some(&mut self.item))
    }

    /// The single request of a small input without templates that is repeated endlessly.
    fn find_constant(&self) -> Option<(Vec<u8>, Described)> {
        let endless = self.options.loops == Loops::Endless && self.answers.is_none();
        // The entries that a HAR leaves out are counted, so it is read only while it is sent.
        if !endless || !self.input.is_whole() || self.format == Format::Har {
            return None;
        }
        let (mut records, mut values) = (self.records(Box::new(self.input.beginning())), Values::new(0));
        let (mut first, mut second) = (Item::default(), Item::default());
        let one = matches!(records.next(&mut values, &mut first.request), Ok(true))
            && matches!(records.next(&mut values, &mut second.request), Ok(false))
            && !values.used();
        drop(records);
        let described = describe(&first, 0, 0);
        one.then_some((first.request.bytes, described))
    }

    fn records<'a>(&self, reader: Box<dyn BufRead + Send + 'a>) -> Box<dyn Records + 'a> {
        let (name, defaults) = (self.input.name(), self.options.defaults.clone());
        match self.format {
            Format::Phantom => Box::new(phantom::Phantom::new(name, reader)),
            Format::Urls => Box::new(PerLine::new(name, reader, defaults, url_list::make)),
            Format::Ndjson => Box::new(PerLine::new(name, reader, defaults, ndjson::make)),
            Format::Har => Box::new(har::Har::new(name, reader, defaults, Arc::clone(&self.counts))),
            Format::AccessLog => Box::new(PerLine::new(name, reader, defaults, access_log::make)),
            Format::Uri => Box::new(tank::Uri::new(name, reader, defaults)),
            Format::UriPost => Box::new(tank::UriPost::new(name, reader, defaults)),
            Format::JsonLine => Box::new(PerLine::new(name, reader, defaults, json_line::make_tank)),
            Format::Vegeta => Box::new(vegeta::Vegeta::new(name, reader, defaults)),
            Format::VegetaJson => Box::new(PerLine::new(name, reader, defaults, json_line::make_vegeta)),
        }
    }

    /// Begins the next pass. False: there is none.
    fn begin_pass(&mut self) -> Result<bool, AmmoError> {
        let begun = self.passes_begun;
        let wanted = match self.options.loops {
            Loops::Endless => true,
            Loops::Times(times) => begun < times.get(),
        };
        if !wanted {
            return Ok(false);
        }
        // A stream cannot be read again. If more passes were requested, opening it has failed.
        let Some(reader) = self.input.read()? else { return Ok(false) };
        let answers = match &mut self.answers {
            None => None,
            Some((input, _)) => match input.read()? {
                Some(reader) => Some(AnswerLines::new(input.name(), reader)),
                None => return Ok(false),
            },
        };
        self.pass = Some(Pass {
            records: self.records(reader as Reader),
            answers,
            on_broken: self.options.on_broken,
            counts: Arc::clone(&self.counts),
        });
        self.passes_begun += 1;
        self.pass_requests = 0;
        Ok(true)
    }

    fn fault(&self, reason: &str) -> AmmoError {
        AmmoError::input(self.input.name(), AmmoPlace::Whole, reason)
    }

    /// Reads the next request into `item`.
    fn step(&mut self, item: &mut Item) -> Result<Step, AmmoError> {
        if self.pass.is_none() && !self.begin_pass()? {
            return Ok(Step::End);
        }
        let Some(pass) = &mut self.pass else { return Ok(Step::End) };
        if pass.next(&mut self.values, item)? {
            self.pass_requests += 1;
            return Ok(Step::Request);
        }
        self.pass = None;
        match self.pass_requests {
            0 => Err(self.fault("it holds no request")),
            _ => Ok(Step::PassEnd),
        }
    }

    /// Reads the next request into `self.item`, in the ammo's order. False at the end.
    fn next_in_order(&mut self) -> Result<bool, AmmoError> {
        let mut item = std::mem::take(&mut self.item);
        loop {
            match self.step(&mut item)? {
                Step::Request => break,
                Step::PassEnd => {}
                Step::End => return Ok(false),
            }
        }
        self.item = item;
        Ok(true)
    }

    /// Takes a request of the window into `self.item`. False at the end. A pass ends before the next one begins.
    fn next_shuffled(&mut self, window: &mut Window<Item>) -> Result<bool, AmmoError> {
        loop {
            self.fill(window)?;
            if let Some(item) = window.draw() {
                self.item = item;
                return Ok(true);
            }
            if !std::mem::take(&mut self.pass_ended) {
                return Ok(false);
            }
        }
    }

    fn fill(&mut self, window: &mut Window<Item>) -> Result<(), AmmoError> {
        while !self.pass_ended && !window.is_full() {
            let mut item = Item::default();
            match self.step(&mut item)? {
                Step::Request => window.put(item.bytes(), item),
                Step::PassEnd => self.pass_ended = true,
                Step::End => break,
            }
        }
        Ok(())
    }
}

impl RequestSource for Ammo {
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Described>, SourceError> {
        if self.next_item().map_err(|error| SourceError(error.to_string()))?.is_none() {
            return Ok(None);
        }
        let index = self.index;
        self.index += 1;
        let described = describe(&self.item, index, self.tags.number(&self.item.request.tag));
        bytes.extend_from_slice(&self.item.request.bytes);
        if let (Some(expected), Some((_, comparison))) = (self.item.expected.take(), &self.answers) {
            comparison.expect(index, &self.item.request.bytes, expected);
        }
        Ok(Some(described))
    }

    fn constant(&self) -> Option<(Vec<u8>, Described)> {
        self.constant.clone()
    }

    fn tags(&self) -> Option<Arc<TagNames>> {
        self.constant.is_none().then(|| self.tags.names())
    }
}

fn describe(item: &Item, index: u64, tag: u32) -> Described {
    Described {
        index,
        tag,
        expected_status: item.expected.as_ref().map_or(0, |expected| expected.status),
        is_head: item.request.bytes.starts_with(b"HEAD "),
        closes: item.request.closes,
    }
}

#[cfg(test)]
mod supplying {
    use super::{Ammo, AmmoOptions, Described, Format, Input, Loops, RequestSource};
    use std::num::NonZeroU64;

    fn ammo(text: &str, options: AmmoOptions) -> Ammo {
        let input = Input::of_stream("input", Box::new(std::io::Cursor::new(text.as_bytes().to_vec())));
        Ammo::of_input(input.expect("open"), None, options).expect("ammo")
    }

    fn times(times: u64) -> AmmoOptions {
        AmmoOptions { loops: Loops::Times(NonZeroU64::new(times).expect("some")), ..AmmoOptions::default() }
    }

    fn targets(ammo: &mut Ammo, at_most: usize) -> Vec<String> {
        let mut all = Vec::new();
        let mut bytes = Vec::new();
        while all.len() < at_most {
            bytes.clear();
            let Some(described) = ammo.next(&mut bytes).expect("good ammo") else { break };
            assert_eq!(described.index, all.len() as u64);
            let line = String::from_utf8_lossy(&bytes).into_owned();
            all.push(line.split(' ').nth(1).unwrap_or_default().to_owned());
        }
        all
    }

    #[test]
    fn ammo_is_repeated_as_often_as_is_said_or_needed() {
        assert_eq!(targets(&mut ammo("/a\n/b\n", times(2)), 100), ["/a", "/b", "/a", "/b"]);
        assert_eq!(targets(&mut ammo("/a\n/b\n", AmmoOptions::default()), 5), ["/a", "/b", "/a", "/b", "/a"]);
    }

    #[test]
    fn templates_are_filled_anew_in_each_pass() {
        assert_eq!(targets(&mut ammo("/{seq}\n", times(3)), 100), ["/1", "/2", "/3"]);
        let options = |seed| AmmoOptions { seed, ..AmmoOptions::default() };
        let first = targets(&mut ammo("/{int:1..1000000}\n", options(1)), 20);
        assert_eq!(first, targets(&mut ammo("/{int:1..1000000}\n", options(1)), 20));
        assert_ne!(first, targets(&mut ammo("/{int:1..1000000}\n", options(2)), 20));
    }

    #[test]
    fn a_shuffled_pass_ends_before_the_next_one_begins_and_the_passes_differ() {
        let text: String = (0..50).map(|number| format!("/{number}\n")).collect();
        let options = |seed| AmmoOptions { shuffle: Some(seed), ..times(2) };
        let order = targets(&mut ammo(&text, options(1)), 1000);
        assert_eq!(order.len(), 100);
        let sorted = |part: &[String]| {
            let mut part = part.to_vec();
            part.sort();
            part
        };
        assert_eq!(sorted(&order[..50]), sorted(&order[50..]));
        assert_ne!(order[..50], order[50..]);
        assert_eq!(order, targets(&mut ammo(&text, options(1)), 1000));
        assert_ne!(order, targets(&mut ammo(&text, options(2)), 1000));
    }

    #[test]
    fn a_stream_that_is_not_kept_is_not_repeated() {
        let long = "/a\n".repeat(super::KEPT_BYTES_MAX / 3 + 1);
        let open = |options| {
            let stream: Box<dyn std::io::BufRead + Send> = Box::new(std::io::Cursor::new(long.clone().into_bytes()));
            Ammo::of_streams(("input", stream), None, options).map(|_| ())
        };
        let message = open(times(2)).expect_err("it is too long").to_string();
        assert!(message.contains("input: more than 4 MB"), "{message}");
        assert_eq!((open(times(1)).is_ok(), open(AmmoOptions::default()).is_ok()), (true, true));
    }

    #[test]
    fn random_placeholders_are_found_where_the_format_has_some() {
        let is = |text: &str, format: Format| {
            ammo(text, AmmoOptions { format: Some(format), ..AmmoOptions::default() }).may_be_random()
        };
        for text in ["/{int:1..2}\n", "/a\n/{choice:a|b}\n", "/{uuid}\n"] {
            assert!(is(text, Format::Urls) && !is(text, Format::AccessLog), "{text}");
        }
        assert!(!is("/{seq}\n", Format::Urls) && !is("{\"path\":\"/\"}\n", Format::Ndjson));
        assert!(is(&"/a\n".repeat(super::KEPT_BYTES_MAX / 3 + 1), Format::Urls), "its end is not known");
    }

    #[test]
    fn one_request_that_never_changes_is_constant() {
        let constant = |text: &str, options: AmmoOptions| ammo(text, options).constant();
        let (bytes, described) = constant("# one\n/a\n", AmmoOptions::default()).expect("constant");
        assert_eq!((bytes.as_slice(), described), (&b"GET /a HTTP/1.1\r\nHost: \r\n\r\n"[..], Described::default()));
        assert!(constant("/a\n/b\n", AmmoOptions::default()).is_none());
        assert!(constant("/{seq}\n", AmmoOptions::default()).is_none());
        assert!(constant("/a\n", times(3)).is_none());
    }

    #[test]
    fn the_engine_learns_of_head_and_of_connections_that_close() {
        let text = "{\"method\":\"HEAD\",\"path\":\"/a\"}\n{\"path\":\"/a\",\"headers\":{\"Connection\":\"close\"}}\n";
        let mut ammo = ammo(text, AmmoOptions { format: Some(Format::Ndjson), ..times(1) });
        let mut next = || ammo.next(&mut Vec::new()).expect("good").expect("more");
        let (first, second) = (next(), next());
        assert_eq!((first.is_head, first.closes, first.tag), (true, false, 0));
        assert_eq!((second.is_head, second.closes, second.tag), (false, true, 1));
    }

    #[test]
    fn ammo_without_a_request_is_an_error_rather_than_an_endless_loop() {
        let options = AmmoOptions { format: Some(Format::Urls), ..AmmoOptions::default() };
        let error = ammo("# nothing\n", options).next(&mut Vec::new()).expect_err("empty");
        assert_eq!(error.to_string(), "input: it holds no request");
    }
}
