//! Texts and tables of the page. All texts go through [`escaped`]: target, reasons and names of phases are untrusted.

use crate::printable::printable;
use std::fmt::Write as _;

/// `text` as the content of an element or of a quoted attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in printable(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            character => out.push(character),
        }
    }
    out
}

/// A table: the first column names the row, the others are values.
pub(super) struct Table {
    head: String,
    body: String,
}

impl Table {
    /// A table with these columns.
    pub(super) fn new(columns: &[&str]) -> Table {
        let mut head = String::new();
        for column in columns {
            let _ = write!(head, "<th scope=\"col\">{}</th>", escaped(column));
        }
        Table { head, body: String::new() }
    }

    /// Adds a row.
    pub(super) fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.row_with_errors(cells, None);
    }

    /// Adds a row; the cell of this column is shown as an error.
    pub(super) fn row_with_errors<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>, errors: Option<usize>) {
        self.body.push_str("<tr>");
        self.cells(cells, errors);
    }

    /// Adds a row of a chart: `x` is its coordinate in the chart's own units, by which the script finds the row.
    pub(super) fn placed_row<T: AsRef<str>>(&mut self, x: f64, cells: impl IntoIterator<Item = T>) {
        let _ = write!(self.body, "<tr data-x=\"{x:.1}\">");
        self.cells(cells, None);
    }

    fn cells<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>, errors: Option<usize>) {
        for (column, cell) in cells.into_iter().enumerate() {
            let cell = escaped(cell.as_ref());
            let _ = match column {
                0 => write!(self.body, "<th scope=\"row\">{cell}</th>"),
                _ if errors == Some(column) => write!(self.body, "<td class=\"bad\">{cell}</td>"),
                _ => write!(self.body, "<td>{cell}</td>"),
            };
        }
        self.body.push_str("</tr>\n");
    }

    /// The table as HTML.
    pub(super) fn html(&self) -> String {
        self.with_attributes("")
    }

    /// The table of a chart, with the id by which the chart finds it, inside a collapsible element.
    pub(super) fn folded(&self, id: &str) -> String {
        let table = self.with_attributes(&format!(" id=\"{id}\""));
        format!("<details><summary>Numbers of this chart</summary>{table}</details>\n")
    }

    fn with_attributes(&self, attributes: &str) -> String {
        let Table { head, body } = self;
        format!(
            "<div class=\"wide\"><table{attributes}><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_others_is_only_text() {
        assert_eq!(escaped("<b a='\"'>&\u{1b}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{fffd}");
        let mut table = Table::new(&["<i>"]);
        table.row(["<script>", "</td>"]);
        assert!(!table.html().contains("<script>") && !table.html().contains("<i>"), "{}", table.html());
    }
}
