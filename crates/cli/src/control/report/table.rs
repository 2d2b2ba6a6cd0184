/// Lays out a table without a frame. Columns are padded with spaces; control characters in cells
/// become spaces, so that a text from outside cannot start a line of its own.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut lines = vec![header.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()];
    let one_line = |cell: String| cell.replace(char::is_control, " ");
    lines.extend(rows.into_iter().map(|row| row.into_iter().map(one_line).collect()));
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let pad = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(pad).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_spaces() {
        let rows = vec![vec!["i-1".to_owned(), String::new()], vec!["i-22".into(), "idle".into()]];
        assert_eq!(table(&["instance", "state"], rows), "instance  state\ni-1\ni-22      idle");
        let rows = vec![vec!["i-1".to_owned(), "x\n::error::y".to_owned()]];
        assert_eq!(table(&["id", "why"], rows), "id   why\ni-1  x ::error::y");
    }
}
