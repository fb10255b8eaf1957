//! Text that is put together from what is a client's own and what many share.

use bytes::Bytes;

/// Bytes in order, of which large ones are references.
#[derive(Debug, Default)]
pub(super) struct Parts {
    whole: Vec<Bytes>,
    /// Text after the last part.
    text: Vec<u8>,
    /// Bytes of `whole`.
    bytes: usize,
}

/// Shared bytes up to this size are copied.
const COPIED_BYTES_MAX: usize = 1024;

impl Parts {
    /// The buffer to which text is appended.
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Appends what others have as well.
    pub(super) fn share(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_BYTES_MAX {
            return self.text.extend_from_slice(&bytes);
        }
        self.close_text();
        self.bytes += bytes.len();
        self.whole.push(bytes);
    }

    /// Bytes of all of it.
    pub(super) fn len(&self) -> usize {
        self.bytes + self.text.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it.
    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.close_text();
        self.whole
    }

    fn close_text(&mut self) {
        if !self.text.is_empty() {
            self.bytes += self.text.len();
            self.whole.push(std::mem::take(&mut self.text).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_is_referred_to_and_the_rest_is_put_together() {
        let large = Bytes::from(vec![b'x'; COPIED_BYTES_MAX + 1]);
        let mut parts = Parts::default();
        assert!(parts.is_empty());
        parts.text().push(b'a');
        parts.share(Bytes::from_static(b"b"));
        parts.share(large.clone());
        parts.text().push(b'c');
        assert_eq!(parts.len(), large.len() + 3);
        let parts = parts.finish();
        assert_eq!(parts, [&b"ab"[..], &large, b"c"]);
        assert_eq!(parts[1].as_ptr(), large.as_ptr());
    }
}
