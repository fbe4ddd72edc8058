//! A grid of text for a terminal or a file: the first column is left-aligned, the others right-aligned, widths follow
//! the longest cell.
//!
//! The grid is independent of its content. It does not cut: its caller chooses columns for the available width.

/// Blanks between two columns.
const GAP: usize = 2;
/// Blanks before the first column.
const INDENT: usize = 2;

/// Rows of cells. A row may be shorter than the others.
#[derive(Default)]
pub(crate) struct Grid {
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Adds a row.
    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Length of its longest line, in characters.
    pub(crate) fn width(&self) -> usize {
        let widths = self.widths();
        INDENT + widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
    }

    /// Appends its lines to `out`.
    pub(crate) fn append(&self, out: &mut String) {
        let widths = self.widths();
        for row in &self.rows {
            let mut line = " ".repeat(INDENT);
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let blanks = " ".repeat(width - cell.chars().count());
                if column == 0 {
                    line.extend([cell.as_str(), &blanks]);
                } else {
                    line.push_str(&" ".repeat(GAP));
                    line.extend([blanks.as_str(), cell]);
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        (0..columns).map(|column| width(column).unwrap_or(0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_stands_left_and_the_others_right() {
        let mut grid = Grid::default();
        grid.row(["", "p50", "max"]);
        grid.row(["latency", "21.5 µs", "1 s"]);
        grid.row(["x"]);
        let mut text = String::new();
        grid.append(&mut text);
        assert_eq!(text, "               p50  max\n  latency  21.5 µs  1 s\n  x\n");
        assert_eq!(grid.width(), 23);
    }
}
