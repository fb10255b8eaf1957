//go:build cgo && linux && amd64 && CHOSEN

package dwell

// The library is a module of its own, and is linked with the program. The tag musl chooses the one
// for musl.
import _ "MODULE/lib/PLATFORM"
