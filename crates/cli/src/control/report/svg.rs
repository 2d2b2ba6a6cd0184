//! What the plots share: a drawing of texts and areas in the colours of a page, and round scales.

/// An SVG image in the making.
pub(super) struct Drawing {
    ink: &'static str,
    parts: Vec<String>,
}

impl Drawing {
    /// An empty image of this size. `description` is for readers that do not see it; it must not hold
    /// what XML gives a meaning.
    pub(super) fn new(
        ink: &'static str,
        (width, height): (f64, f64),
        description: &str,
    ) -> Drawing {
        let head = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="{description}">"#
        );
        Drawing { ink, parts: vec![head] }
    }

    /// Adds an element, as SVG has it.
    pub(super) fn push(&mut self, element: String) {
        self.parts.push(element);
    }

    pub(super) fn area(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        let [x, y, width, height] = [x, y, width, height].map(rounded);
        self.parts.push(format!(
            r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>"#
        ));
    }

    /// Adds a text, which must not hold what XML gives a meaning.
    pub(super) fn label(&mut self, (x, y): (f64, f64), anchor: &str, words: &str) {
        let ([x, y], ink) = ([x, y].map(rounded), self.ink);
        self.parts.push(format!(
            r#"<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{ink}">{words}</text>"#
        ));
    }

    pub(super) fn finish(mut self) -> String {
        self.parts.push("</svg>\n".to_owned());
        self.parts.join("\n")
    }
}

/// The distance of two lines of the grid, and the last of at most six: 1, 2 or 5 times a power of ten.
pub(super) fn scale(most: f64) -> (f64, f64) {
    let most = if most > 0.0 { most } else { 1.0 };
    let power = 10_f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| most / step <= 5.0).unwrap_or(10.0 * power);
    (step, (most / step).ceil() * step)
}

/// To a tenth of a pixel.
pub(super) fn rounded(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_round_steps_and_reaches_the_highest_value() {
        for (most, step, top) in [
            (0.0, 0.2, 1.0),
            (1.0, 0.2, 1.0),
            (1.01, 0.5, 1.5),
            (7.3, 2.0, 8.0),
            (0.004, 0.001, 0.004),
            (99.0, 20.0, 100.0),
            (1234.0, 500.0, 1500.0),
        ] {
            let (found, last) = scale(most);
            assert!((found / step - 1.0).abs() < 1e-9, "{most}: {found}");
            assert!((last / top - 1.0).abs() < 1e-9, "{most}: {last}");
        }
    }
}
