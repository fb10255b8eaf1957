//go:build cgo && linux

package dwell

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// template is what requests are copied from: only so is a request given its context.
var template = &http.Request{}

// newRequest makes the request of an exchange; an error where its target is no URL.
func (e *exchange) newRequest() (*http.Request, error) {
	// Inlined, it makes nothing but the copy.
	e.request = *template.WithContext((*requestContext)(e))
	req := &e.request
	req.Method = internMethod(e.span(2))
	req.RequestURI = e.span(4)
	req.RemoteAddr = e.span(6)
	req.TLS = e.connectionState()
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/1.1", 1, 1
	if e.flags&flagHTTP10 != 0 {
		req.Proto, req.ProtoMinor = "HTTP/1.0", 0
	}
	if isPlainTarget(req.RequestURI) {
		e.url.Path, e.url.RawQuery, _ = strings.Cut(req.RequestURI, "?")
		req.URL = &e.url
	} else {
		var err error
		if req.URL, err = url.ParseRequestURI(req.RequestURI); err != nil {
			return nil, err
		}
	}
	e.fillHeader(req)
	if e.isFramed() {
		e.connects = prepareFramed(req)
	}
	if req.URL.Host != "" {
		req.Host = req.URL.Host
	}
	req.Body = http.NoBody
	if e.flags&flagBodyFollows != 0 {
		req.Body = &body{e: e, req: req}
		req.ContentLength = int64(e.word(9)) | int64(e.word(10))<<32
		if e.flags&flagChunked != 0 {
			req.ContentLength = -1
		}
	} else if e.flags&flagChunked != 0 {
		req.ContentLength = -1
	}
	return req, nil
}

// Words of a request's table before its fields, and of a field.
const (
	fixedWords = 11
	fieldWords = 4
)

// fillHeader makes the header of a request. Its strings are parts of the one of the head; names
// are canonical already.
func (e *exchange) fillHeader(req *http.Request) {
	count := int(e.word(8))
	header := make(http.Header, count)
	var values []string
	for i := range count {
		place := fixedWords + i*fieldWords
		name, value := e.span(place), e.span(place+2)
		switch name {
		case "Host":
			req.Host = value
			continue
		case "Transfer-Encoding":
			req.TransferEncoding = []string{"chunked"}
			continue
		case "Connection":
			if hasToken(value, "close") {
				req.Close = true
			}
		}
		if before, ok := header[name]; ok {
			header[name] = append(before, value)
			continue
		}
		if len(values) == 0 {
			// One piece of memory for this one and all that follow.
			values = make([]string, count-i)
		}
		values[0] = value
		header[name] = values[:1:1]
		values = values[1:]
	}
	req.Header = header
	if e.flags&flagHTTP10 != 0 && e.flags&flagKeepAlive == 0 {
		req.Close = true
	}
	if pragma := header["Pragma"]; !e.isFramed() && len(pragma) > 0 && pragma[0] == "no-cache" {
		if _, ok := header["Cache-Control"]; !ok {
			header["Cache-Control"] = []string{"no-cache"}
		}
	}
	if e.flags&flagChunked != 0 {
		delete(header, "Content-Length")
	}
	if e.flags&(flagChunked|flagHTTP2) != 0 {
		takeTrailerNames(req)
	}
}

// takeTrailerNames announces the trailers that a client says it will send.
func takeTrailerNames(req *http.Request) {
	for _, line := range req.Header["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			key := textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			switch key {
			case "", "Transfer-Encoding", "Trailer", "Content-Length":
				continue
			}
			if req.Trailer == nil {
				req.Trailer = http.Header{}
			}
			req.Trailer[key] = nil
		}
	}
	delete(req.Header, "Trailer")
}

// isPlainTarget tells whether a target is a path of the usual bytes, perhaps with a query, of which
// url.ParseRequestURI would make no more than that.
func isPlainTarget(target string) bool {
	if target == "" || target[0] != '/' {
		return false
	}
	for i := range len(target) {
		switch c := target[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '/' && i != 1, c == '.', c == '-', c == '_', c == '~':
		case c == '?':
			query := target[i+1:]
			return query != "" && strings.IndexByte(query, '#') < 0 && isPlain(query)
		default:
			return false
		}
	}
	return true
}

// isPlain tells whether there is nothing in s that a URL may not have.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

func internMethod(method string) string {
	switch method {
	case "GET":
		return "GET"
	case "POST":
		return "POST"
	case "HEAD":
		return "HEAD"
	}
	return method
}

// hasToken tells whether a token is in a list, in any case.
func hasToken(list, token string) bool {
	for len(list) > 0 {
		var part string
		part, list, _ = strings.Cut(list, ",")
		if strings.EqualFold(textproto.TrimString(part), token) {
			return true
		}
	}
	return false
}
