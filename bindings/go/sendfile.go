//go:build cgo && linux

package dwell

import (
	"io"
	"os"
)

// ReadFrom copies src into the body; a part of a file is copied by the system.
func (w *response) ReadFrom(src io.Reader) (int64, error) {
	if n, ok, err := w.sendFile(src); ok {
		return n, err
	}
	return io.Copy(plainWriter{w}, src)
}

// plainWriter hides ReadFrom, which io.Copy would call again.
type plainWriter struct{ io.Writer }

// sendFile has the system copy a file; false where it cannot be.
func (w *response) sendFile(src io.Reader) (int64, bool, error) {
	limited, isLimited := src.(*io.LimitedReader)
	if isLimited {
		src = limited.R
	}
	file, ok := src.(*os.File)
	if !ok {
		return 0, false, nil
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, false, nil
	}
	offset, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, false, nil
	}
	size := info.Size() - offset
	if isLimited {
		size = min(size, limited.N)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if size <= 0 || w.length == -1 || !w.isDecided || w.isDone || w.isHEAD || w.failed != nil ||
		w.hijacked.Load() || !hasBody(w.status) || w.written+size > w.length ||
		w.sent.specials[contentType].value == "" {
		return 0, false, nil
	}
	w.emitHeld()
	w.flushOut(nil)
	if w.failed != nil {
		return 0, true, w.failed
	}
	fd, err := dupDescriptor(file)
	if err != nil {
		return 0, false, nil
	}
	if w.failed = w.e.sendFile(fd, offset, size); w.failed != nil {
		return 0, true, w.failed
	}
	w.written += size
	file.Seek(offset+size, io.SeekStart)
	if isLimited {
		limited.N -= size
	}
	return size, true, nil
}
