//! Arithmetic over the series of an insight: [`Formula`], such as `A / (A + B) * 100`.

/// Longest formula.
const CHARS_MAX: usize = 1000;

/// Deepest nesting of parentheses, signs and exponents.
const DEPTH_MAX: usize = 50;

const TOO_DEEP: &str = "The formula is nested too deeply.";

/// A parsed formula.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    text: String,
    name: Option<String>,
    root: Term,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Number(f64),
    Series(usize),
    Negative(Box<Self>),
    Pair(Operator, Box<(Self, Self)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
}

impl Formula {
    /// Parses a formula over this number of series, which are named A, B and so on.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a sentence.
    pub fn parse(text: &str, series: usize) -> Result<Self, String> {
        if text.len() > CHARS_MAX {
            return Err(format!("A formula has at most {CHARS_MAX} characters."));
        }
        let mut reader = Reader { rest: text.trim(), series };
        let root = reader.sum(DEPTH_MAX)?;
        match reader.rest {
            "" => Ok(Self { text: text.trim().to_owned(), name: None, root }),
            rest => Err(format!("Unexpected \"{}\" in the formula.", first(rest))),
        }
    }

    /// The same with a name for its label.
    pub fn named(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    /// The label in the response.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("Formula ({})", self.text))
    }

    /// The value of the formula, where `value` returns that of a series. A result that is not finite becomes 0, as in
    /// PostHog: division by zero and its remainder, an infinite power, a power that is not a real number.
    pub fn evaluate(&self, value: &impl Fn(usize) -> f64) -> f64 {
        self.root.evaluate(value)
    }
}

impl Term {
    fn evaluate(&self, value: &impl Fn(usize) -> f64) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Series(series) => value(*series),
            Self::Negative(term) => -term.evaluate(value),
            Self::Pair(operator, pair) => {
                let (left, right) = (pair.0.evaluate(value), pair.1.evaluate(value));
                let result = match operator {
                    Operator::Add => left + right,
                    Operator::Subtract => left - right,
                    Operator::Multiply => left * right,
                    Operator::Divide => left / right,
                    // With the sign of the divisor, as in Python.
                    Operator::Remainder => left - right * (left / right).floor(),
                    Operator::Power => left.powf(right),
                };
                if result.is_finite() { result } else { 0.0 }
            }
        }
    }
}

struct Reader<'t> {
    rest: &'t str,
    series: usize,
}

fn first(text: &str) -> char {
    text.chars().next().unwrap_or(' ')
}

impl Reader<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Consumes one of these operators, if it is next.
    fn operator(&mut self, wanted: &[(char, Operator)]) -> Option<Operator> {
        self.skip();
        let (sign, operator) = wanted.iter().find(|(sign, _)| self.rest.starts_with(*sign))?;
        self.rest = self.rest.get(sign.len_utf8()..).unwrap_or_default();
        Some(*operator)
    }

    fn sum(&mut self, depth: usize) -> Result<Term, String> {
        let signs = [('+', Operator::Add), ('-', Operator::Subtract)];
        let mut left = self.product(depth)?;
        while let Some(operator) = self.operator(&signs) {
            left = Term::Pair(operator, Box::new((left, self.product(depth)?)));
        }
        Ok(left)
    }

    fn product(&mut self, depth: usize) -> Result<Term, String> {
        let signs =
            [('*', Operator::Multiply), ('/', Operator::Divide), ('%', Operator::Remainder)];
        let mut left = self.signed(depth)?;
        while let Some(operator) = self.operator(&signs) {
            left = Term::Pair(operator, Box::new((left, self.signed(depth)?)));
        }
        Ok(left)
    }

    /// A power with signs before it. Signs bind less tightly than powers, as in `-A ** 2`.
    fn signed(&mut self, depth: usize) -> Result<Term, String> {
        let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
        self.skip();
        match self.rest.strip_prefix('-') {
            Some(after) => {
                self.rest = after;
                Ok(Term::Negative(Box::new(self.signed(depth)?)))
            }
            None => self.power(depth),
        }
    }

    /// Right-associative: `A ** B ** C` is `A ** (B ** C)`.
    fn power(&mut self, depth: usize) -> Result<Term, String> {
        let base = self.term(depth)?;
        self.skip();
        let Some(after) = self.rest.strip_prefix("**") else { return Ok(base) };
        self.rest = after;
        let exponent = self.signed(depth)?;
        Ok(Term::Pair(Operator::Power, Box::new((base, exponent))))
    }

    fn term(&mut self, depth: usize) -> Result<Term, String> {
        self.skip();
        let next = self.rest.chars().next().ok_or("The formula ends too early.")?;
        let after = self.rest.get(next.len_utf8()..).unwrap_or_default();
        match next {
            '(' => {
                self.rest = after;
                let inner = self.sum(depth)?;
                self.skip();
                self.rest = self.rest.strip_prefix(')').ok_or("A parenthesis is not closed.")?;
                Ok(inner)
            }
            letter if letter.is_ascii_alphabetic() => {
                let at = u32::from(letter.to_ascii_uppercase()).saturating_sub(u32::from('A'));
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                if at >= self.series {
                    return Err(format!("The formula has no series {letter}."));
                }
                self.rest = after;
                Ok(Term::Series(at))
            }
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Result<Term, String> {
        let end = self.rest.find(|next: char| !next.is_ascii_digit() && next != '.');
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let number = digits.parse::<f64>();
        let wrong = |_| format!("Unexpected \"{}\" in the formula.", first(self.rest));
        let number = number.map_err(wrong)?;
        self.rest = rest;
        Ok(Term::Number(number))
    }
}

#[cfg(test)]
mod tests {
    use super::Formula;

    fn value(text: &str) -> Result<f64, String> {
        let values = [6.0, 3.0, 0.0];
        Ok(Formula::parse(text, 3)?.evaluate(&|series| values[series]))
    }

    #[test]
    fn arithmetic_is_as_usual() {
        for (text, expected) in [
            ("A", 6.0),
            ("a + b", 9.0),
            ("A - B - 1", 2.0),
            ("A / B * 2", 4.0),
            ("A + B * 2", 12.0),
            ("(A + B) * 2", 18.0),
            ("-A + -(B - 0.5)", -8.5),
            ("A / C", 0.0),
            (" 100*A/(A+B) ", 600.0 / 9.0),
            ("A**2", 36.0),
            ("A ** B ** 2", 6.0_f64.powi(9)),
            ("2 * B ** 2 + 1", 19.0),
            ("-B ** 2", -9.0),
            ("(-B) ** 2", 9.0),
            ("B ** -1 * 3", 1.0),
            ("A ** 0.5 ** 2", 6.0_f64.powf(0.25)),
            ("C ** 0", 1.0),
            // Infinite, or not a real number.
            ("C ** -1", 0.0),
            ("(C - 1) ** 0.5", 0.0),
            ("10 ** 999", 0.0),
            ("A % 4", 2.0),
            ("7 % B * 2", 2.0),
            ("-7 % B", 2.0),
            ("7 % -B", -2.0),
            ("A % C", 0.0),
            ("5.5 % 2", 1.5),
            ("A % 4 ** 2", 6.0),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_formula_is_refused() {
        let deep = format!("{}A{}", "(".repeat(60), ")".repeat(60));
        let (signs, powers) = (format!("{}A", "-".repeat(60)), format!("A{}", "**A".repeat(60)));
        let long = format!("A{}", " + A".repeat(400));
        for text in [
            "", "D", "A +", "(A", "A B", "A ^ 2", "1.2.3", "é", "A **", "** A", "A ***B", "A * *B",
            "A %", "% A", "A %% B", &deep, &signs, &powers, &long,
        ] {
            assert!(value(text).is_err(), "{text}");
        }
        assert_eq!(Formula::parse("A/B", 2).unwrap().label(), "Formula (A/B)");
        assert_eq!(
            Formula::parse("A/B", 2).unwrap().named(Some("rate".to_owned())).label(),
            "rate"
        );
    }
}
