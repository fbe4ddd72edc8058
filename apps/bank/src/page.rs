//! The pages.

use std::sync::LazyLock;

use askama::Template;

/// The login page.
#[derive(Template)]
#[template(path = "index.html")]
pub struct Index<'p> {
    /// A notice above the form.
    pub notice: Option<&'p str>,
}

/// The page of a logged-in customer.
#[derive(Template)]
#[template(path = "mypage.html")]
pub struct MyPage<'p> {
    /// The customer's login.
    pub login: &'p str,
    /// Local time of the previous login.
    pub last_at: &'p str,
    /// Address of the previous login.
    pub last_address: &'p str,
}

/// The login page without a notice, which nearly all clients receive: rendered once.
pub static PLAIN_INDEX: LazyLock<String> =
    LazyLock::new(|| Index { notice: None }.render().expect("a template of plain text"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send_is_text_and_no_markup() {
        let page =
            MyPage { login: "<b>\"&", last_at: "2014-09-27 10:00:00", last_address: "10.0.0.1" }.render().unwrap();
        assert!(page.contains("<td>&#60;b&#62;&#34;&#38;</td>"), "{page}");
        assert!(page.contains("<span id=\"last-logined-at\">2014-09-27 10:00:00</span>"), "{page}");
        let index = Index { notice: Some("You're banned.") }.render().unwrap();
        assert!(index.contains("role=\"alert\">You&#39;re banned.</div>"), "{index}");
        assert!(!PLAIN_INDEX.contains("notice-message"));
    }
}
