// Package compress encodes answers with a content coding that the client accepts: zstd, br or gzip.
package compress

import (
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Coding is the name of a content coding, as in Content-Encoding. "" is none.
type Coding string

// codings are those that are offered, the best first: a client that has no preference gets that. gzip is no faster than br, and looks back 32 KiB only.
var codings = [...]Coding{"zstd", "br", "gzip"}

// Choose returns the coding for a value of Accept-Encoding (RFC 9110, 12.5.3): the one that the client prefers, of equal ones the best;
// "" when it accepts none, or prefers none of them to no coding.
func Choose(accept string) Coding {
	const absent = -1.0
	quality := map[string]float64{}
	for item := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "x-gzip" {
			name = "gzip"
		}
		if name != "" {
			quality[name] = weight(params)
		}
	}
	of := func(name string) float64 {
		if q, ok := quality[name]; ok {
			return q
		}
		if q, ok := quality["*"]; ok {
			return q
		}
		return absent
	}
	best, q := Coding(""), 0.0
	if plain, ok := quality["identity"]; ok { // it is acceptable anyway, but counts as preferred only when it is named
		q = plain
	}
	for _, c := range codings {
		if of(string(c)) > q || best == "" && q > 0 && of(string(c)) == q {
			best, q = c, of(string(c))
		}
	}
	return best
}

// weight returns the weight in the parameters of an item; 1 without one, 0 when it is malformed.
func weight(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(p, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}

// coder is what the encoders of all codings have in common.
type coder interface {
	io.Writer
	Flush() error
	Close() error
	Reset(w io.Writer)
}

// window is how far back an encoder looks, in bytes. Entries of a history repeat each other: a window with several of them makes its answer many times smaller.
// It is also most of the memory of an encoder.
const window = 1 << 20

func newCoder(c Coding) coder {
	switch c {
	case "zstd":
		w, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(window)) // its options are valid
		return w
	case "gzip":
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		return w
	default:
		return brotli.NewWriterOptions(nil, brotli.WriterOptions{Quality: 3, LGWin: 20})
	}
}

// Pool lends encoders, a bounded number at a time.
type Pool struct {
	places chan struct{}
	idle   [len(codings)]sync.Pool
}

// NewPool returns a Pool for so many encoders at a time.
func NewPool(most int) *Pool { return &Pool{places: make(chan struct{}, most)} }

// Used returns how many encoders are in use.
func (p *Pool) Used() int { return len(p.places) }

// Begin returns an encoder, to be released; nil when too many are in use, or the coding is "".
func (p *Pool) Begin(c Coding) *Encoder {
	for i, known := range codings {
		if c != known {
			continue
		}
		select {
		case p.places <- struct{}{}:
		default:
			return nil
		}
		e, _ := p.idle[i].Get().(*Encoder)
		if e == nil {
			e = &Encoder{Coding: c, coder: newCoder(c), home: &p.idle[i]}
		}
		e.places = p.places
		e.coder.Reset(&e.out)
		return e
	}
	return nil
}

// Encoder encodes one answer.
type Encoder struct {
	Coding Coding

	coder  coder
	out    sink
	home   *sync.Pool
	places chan struct{}
}

type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

// Append appends the encoded src to dst, so that a client can decode all of it; last ends the answer.
func (e *Encoder) Append(dst, src []byte, last bool) []byte {
	e.out.b = dst
	_, _ = e.coder.Write(src) // a sink has no errors
	if last {
		_ = e.coder.Close()
	} else {
		_ = e.coder.Flush()
	}
	dst, e.out.b = e.out.b, nil
	return dst
}

// Release returns the encoder to its pool. The answer need not have ended.
func (e *Encoder) Release() {
	places := e.places
	e.places = nil
	e.home.Put(e)
	<-places
}
