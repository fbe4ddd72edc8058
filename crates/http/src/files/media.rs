//! Content types by extension.
//!
//! A table of our own, with the types that browsers load and those commonly served beside them. A library of all registered types
//! has a thousand more, and gives no charset for text. Text is UTF-8 here.

/// A content type, and whether compressed siblings are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Media {
    pub(super) content_type: &'static str,
    /// Compression makes it smaller: `.br` and `.gz` files beside it are looked for.
    pub(super) is_compressible: bool,
}

/// Bytes of no known type.
const UNKNOWN: Media = Media { content_type: "application/octet-stream", is_compressible: false };

/// Extensions in lower case, the content type, whether it is compressible.
const TABLE: [(&[&str], &str, bool); 44] = [
    (&["html", "htm"], "text/html; charset=utf-8", true),
    (&["css"], "text/css; charset=utf-8", true),
    (&["js", "mjs"], "text/javascript; charset=utf-8", true),
    (&["json", "map"], "application/json", true),
    (&["svg"], "image/svg+xml", true),
    (&["png"], "image/png", false),
    (&["jpg", "jpeg"], "image/jpeg", false),
    (&["gif"], "image/gif", false),
    (&["webp"], "image/webp", false),
    (&["avif"], "image/avif", false),
    (&["ico"], "image/x-icon", true),
    (&["bmp"], "image/bmp", true),
    (&["tif", "tiff"], "image/tiff", false),
    (&["woff2"], "font/woff2", false),
    (&["woff"], "font/woff", false),
    (&["ttf"], "font/ttf", true),
    (&["otf"], "font/otf", true),
    (&["eot"], "application/vnd.ms-fontobject", true),
    (&["txt", "text", "log"], "text/plain; charset=utf-8", true),
    (&["md"], "text/markdown; charset=utf-8", true),
    (&["csv"], "text/csv; charset=utf-8", true),
    (&["xml", "xsl"], "text/xml; charset=utf-8", true),
    (&["xhtml"], "application/xhtml+xml", true),
    (&["rss"], "application/rss+xml", true),
    (&["atom"], "application/atom+xml", true),
    (&["ics"], "text/calendar; charset=utf-8", true),
    (&["vtt"], "text/vtt; charset=utf-8", true),
    (&["webmanifest"], "application/manifest+json", true),
    (&["jsonld"], "application/ld+json", true),
    (&["wasm"], "application/wasm", true),
    (&["pdf"], "application/pdf", false),
    (&["zip"], "application/zip", false),
    (&["gz"], "application/gzip", false),
    (&["tar"], "application/x-tar", true),
    (&["7z"], "application/x-7z-compressed", false),
    (&["mp4", "m4v"], "video/mp4", false),
    (&["webm"], "video/webm", false),
    (&["mov"], "video/quicktime", false),
    (&["mp3"], "audio/mpeg", false),
    (&["m4a"], "audio/mp4", false),
    (&["ogg", "oga", "opus"], "audio/ogg", false),
    (&["ogv"], "video/ogg", false),
    (&["wav"], "audio/wav", false),
    (&["flac"], "audio/flac", false),
];

impl Media {
    /// The content type of a file, by its name.
    pub(super) fn of(name: &str) -> Media {
        let extension = last_segment(name).rsplit_once('.').map_or("", |(_, extension)| extension);
        let is_known = |known: &&str| known.eq_ignore_ascii_case(extension);
        let row = TABLE.iter().find(|(extensions, ..)| extensions.iter().any(is_known));
        row.map_or(UNKNOWN, |(_, content_type, is_compressible)| Media {
            content_type,
            is_compressible: *is_compressible,
        })
    }
}

/// Fewest hexadecimal digits of a fingerprint.
const FINGERPRINT_DIGITS_MIN: usize = 8;

/// Whether a name holds a fingerprint just before its extension: `site.3f2a9c1b.css`, `site-3f2a9c1b.css`, `3f2a9c1b.css`.
pub(super) fn is_fingerprinted(name: &str) -> bool {
    let Some((stem, _)) = last_segment(name).rsplit_once('.') else { return false };
    let digits = stem.rsplit(['.', '-', '_']).next().unwrap_or_default();
    digits.len() >= FINGERPRINT_DIGITS_MIN && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn last_segment(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_goes_by_the_last_extension_in_either_case() {
        assert_eq!(Media::of("a/b.min.CSS").content_type, "text/css; charset=utf-8");
        assert_eq!(Media::of("jpeg.d/b.JPEG").content_type, "image/jpeg");
        for name in ["css", "a.css/b", "a.", "", "a.css.xyz"] {
            assert_eq!(Media::of(name), UNKNOWN, "{name:?}");
        }
    }

    #[test]
    fn each_extension_stands_once_and_in_lower_case() {
        let mut all: Vec<&str> = TABLE.iter().flat_map(|(extensions, ..)| *extensions).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|extension| *extension == extension.to_ascii_lowercase()));
    }

    #[test]
    fn a_fingerprint_is_eight_hexadecimal_digits_before_the_extension() {
        for name in ["site.3f2a9c1b.css", "a/site-3F2A9C1B00.css", "3f2a9c1b.css", "a_deadbeef.js"] {
            assert!(is_fingerprinted(name), "{name}");
        }
        for name in ["site.3f2a9c1.css", "site.3f2a9c1g.css", "3f2a9c1b/site.css", "site.3f2a9c1b", "site3f2a9c1b.css"]
        {
            assert!(!is_fingerprinted(name), "{name}");
        }
    }
}
