//! A reader of responses that is plain to see through, beside which the decoder is tested.

use super::*;
use crate::http1::body::tests::decode_naively;

/// A response read the plain way: the whole input at hand, line by line.
pub(super) fn read_naively(method: &str, input: &[u8]) -> Result<Seen, ()> {
    let mut seen = Seen::default();
    let mut position = 0;
    loop {
        let rest = &input[position..];
        if !rest.starts_with(&b"HTTP/1."[..rest.len().min(7)]) {
            return Err(());
        }
        let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
            // A head that ends otherwise is wrong, and one without end too long.
            let text = String::from_utf8_lossy(rest);
            let is_over = text.contains("\n\n") || text.contains("\n\r\n") || rest.len() > 200;
            return if is_over { Err(()) } else { Ok(seen) };
        };
        let (text, after) = (&rest[..end + 2], position + end + 4);
        if end + 4 > 200 {
            return Err(());
        }
        position = after;
        let text = std::str::from_utf8(text).map_err(|_| ())?;
        let head = NaiveHead::read(text)?;
        seen.heads.push((head.status, head.fields.len()));
        let status = head.status;
        if status < 200 && status != 101 {
            if seen.heads.len() > 3 {
                return Err(());
            }
            continue;
        }
        seen.is_switching = status == 101 || (method == "CONNECT" && (200..300).contains(&status));
        let has_none = method == "HEAD" || matches!(status, 101 | 204 | 304) || seen.is_switching;
        seen.read_body(&head, has_none, input, position)?;
        return Ok(seen);
    }
}

impl Seen {
    fn read_body(
        &mut self,
        head: &NaiveHead<'_>,
        has_none: bool,
        input: &[u8],
        position: usize,
    ) -> Result<(), ()> {
        let rest = &input[position..];
        let length = head.length()?;
        let persists = !head.has("connection", "close")
            && (head.minor == 1 || head.has("connection", "keep-alive"));
        let is_chunked = head.all("transfer-encoding").next().is_some();
        if has_none {
            self.end = Some(position);
        } else if is_chunked {
            match decode_naively(rest)? {
                Some((body, used)) => (self.body, self.end) = (body, Some(position + used)),
                // How much of a part there is, the caller does not compare.
                None => return Ok(()),
            }
        } else if let Some(length) = length {
            if length as u64 > BODY_BYTES_MAX {
                return Err(());
            }
            self.body = rest[..rest.len().min(length)].to_vec();
            self.end = (rest.len() >= length).then_some(position + length);
        } else {
            (self.body, self.end) = (rest.to_vec(), Some(input.len()));
        }
        let until_close = !has_none && !is_chunked && length.is_none();
        self.keep_alive = self.end.is_some() && persists && !until_close && !self.is_switching;
        Ok(())
    }
}

struct NaiveHead<'b> {
    minor: u8,
    status: u16,
    fields: Vec<(String, &'b str)>,
}

impl<'b> NaiveHead<'b> {
    fn read(text: &'b str) -> Result<Self, ()> {
        let mut lines = text.strip_suffix("\r\n").ok_or(())?.split("\r\n");
        let first = lines.next().ok_or(())?;
        if text.replace("\r\n", "").contains(['\r', '\n', '\0']) {
            return Err(());
        }
        let minor = match first.get(..9).ok_or(())? {
            "HTTP/1.0 " => 0,
            "HTTP/1.1 " => 1,
            _ => return Err(()),
        };
        let code = first.get(9..12).ok_or(())?;
        let follows = first[12..].chars().next();
        if !code.bytes().all(|byte| byte.is_ascii_digit()) || !matches!(follows, None | Some(' ')) {
            return Err(());
        }
        let mut fields = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(())?;
            if !crate::http1::is_token(name.as_bytes()) {
                return Err(());
            }
            fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t'])));
        }
        let status = code.parse().map_err(|_| ())?;
        let head = Self {
            minor,
            status,
            fields,
        };
        head.check()?;
        if status < 100 { Err(()) } else { Ok(head) }
    }

    /// The rules of every head, whether it decides the framing or not.
    fn check(&self) -> Result<(), ()> {
        let codings: Vec<&str> = self.all("transfer-encoding").collect();
        let is_coded = !codings.is_empty();
        let is_chunked = matches!(codings[..], [one] if one.eq_ignore_ascii_case("chunked"));
        let has_length = self.length()?.is_some();
        if is_coded && (!is_chunked || has_length || self.minor == 0) {
            return Err(());
        }
        Ok(())
    }

    fn all<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'b str> + use<'b, 'n> {
        let fields = self.fields.iter().filter(move |(own, _)| own == name);
        fields.map(|(_, value)| *value)
    }

    fn has(&self, name: &str, option: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(','))
            .any(|member| member.trim().eq_ignore_ascii_case(option))
    }

    fn length(&self) -> Result<Option<usize>, ()> {
        let mut lengths = Vec::new();
        for member in self
            .all("content-length")
            .flat_map(|value| value.split(','))
        {
            let digits = member.trim_matches([' ', '\t']);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(());
            }
            lengths.push(digits.parse::<usize>().map_err(|_| ())?);
        }
        lengths.dedup();
        match lengths[..] {
            [] => Ok(None),
            [length] => Ok(Some(length)),
            _ => Err(()),
        }
    }
}
