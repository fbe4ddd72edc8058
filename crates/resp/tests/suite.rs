//! The tests of `resp`, one subject a file, in one program: to link one for each took most of the time.

mod fuzz_check;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

mod codec_properties;
mod codec_replies;
mod codec_requests;
