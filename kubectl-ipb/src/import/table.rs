//! Lines of comma-separated values.

/// A record, and the line on which it begins.
pub(super) type Record = (usize, Vec<String>);

/// The records of `text`, by the rules of RFC 4180: a value in quotes may hold commas, line breaks and doubled quotes.
/// Blank lines are left out.
pub(super) fn records(text: &str) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let mut line = 1;
    let mut letters = text.chars().peekable();
    while letters.peek().is_some() {
        let begin = line;
        let mut record = Vec::new();
        loop {
            let mut value = String::new();
            if letters.next_if_eq(&'"').is_some() {
                loop {
                    match letters.next() {
                        Some('"') if letters.next_if_eq(&'"').is_some() => value.push('"'),
                        Some('"') => break,
                        Some(letter) => {
                            line += usize::from(letter == '\n');
                            value.push(letter);
                        }
                        None => return Err(format!("line {begin}: a quote is not closed")),
                    }
                }
            }
            while let Some(letter) = letters.next_if(|next| !matches!(next, ',' | '\n' | '\r')) {
                value.push(letter);
            }
            record.push(value.trim().to_owned());
            if letters.next_if_eq(&',').is_none() {
                break;
            }
        }
        letters.next_if_eq(&'\r');
        letters.next_if_eq(&'\n');
        line += 1;
        if record.iter().any(|value| !value.is_empty()) {
            records.push((begin, record));
        }
    }
    Ok(records)
}

/// A value as one of a line: in quotes when it has to be. What a spreadsheet would take for a formula stays a text.
pub(crate) fn value(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@']);
    if formula || text.contains([',', '"', '\n', '\r']) {
        let mark = if formula { "'" } else { "" };
        format!("\"{mark}{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_quotes_hold_commas_quotes_and_lines() {
        let text = "ip,reason\r\n\n192.0.2.7,\"a, \"\"b\"\"\nc\"\n192.0.2.8,\n";
        let wanted: Vec<(usize, Vec<&str>)> = vec![
            (1, vec!["ip", "reason"]),
            (3, vec!["192.0.2.7", "a, \"b\"\nc"]),
            (5, vec!["192.0.2.8", ""]),
        ];
        let read = records(text).unwrap();
        let read: Vec<(usize, Vec<&str>)> = read
            .iter()
            .map(|(line, record)| (*line, record.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(read, wanted);
        assert!(records("a,\"b").unwrap_err().contains("line 1"));
        assert_eq!(records("a").unwrap(), [(1, vec!["a".to_owned()])]);
    }

    #[test]
    fn a_written_value_reads_back_and_is_no_formula() {
        for text in ["plain", "a,b", "say \"x\"", "two\nlines"] {
            let read = records(&format!("x,{}\n", value(text))).unwrap();
            assert_eq!(read[0].1[1], text);
        }
        assert_eq!(value("=cmd()"), "\"'=cmd()\"");
    }
}
