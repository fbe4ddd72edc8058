//! The head of a reply while it is written: of an immediate reply, or of a late one.

use http::FieldBlock;

/// The head of a reply that is being written.
pub struct Head<'h> {
    to: &'h mut dyn FieldSink,
}

impl<'h> Head<'h> {
    pub(crate) fn new(to: &'h mut dyn FieldSink) -> Head<'h> {
        Head { to }
    }

    /// Adds a header field. A field that would break the head is left out.
    pub fn header(&mut self, name: &str, value: &str) -> &mut Self {
        self.to.header(name, value);
        self
    }

    /// Adds header fields that were checked before, in one copy.
    pub fn fields(&mut self, block: &FieldBlock) -> &mut Self {
        self.to.fields(block);
        self
    }
}

/// Destination of header fields: an immediate reply or a late one.
pub(crate) trait FieldSink {
    fn header(&mut self, name: &str, value: &str);
    fn fields(&mut self, block: &FieldBlock);
}

impl FieldSink for http::Reply<'_> {
    fn header(&mut self, name: &str, value: &str) {
        http::Reply::header(self, name, value);
    }

    fn fields(&mut self, block: &FieldBlock) {
        http::Reply::fields(self, block);
    }
}

impl FieldSink for http::LateReply {
    fn header(&mut self, name: &str, value: &str) {
        http::LateReply::header(self, name, value);
    }

    fn fields(&mut self, block: &FieldBlock) {
        http::LateReply::fields(self, block);
    }
}
