//go:build cgo && linux && amd64

package dwell

// The library is a module of its own, and is linked with the program.
import _ "MODULE/lib/linux-amd64"
