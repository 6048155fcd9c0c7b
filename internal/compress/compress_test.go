package compress

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]Coding{
		"":                                    "",
		"identity":                            "",
		"deflate":                             "",
		"gzip, deflate":                       "gzip", // httpx
		"gzip, deflate, br, zstd":             "zstd", // Chrome, and httpx with all extras
		"br, gzip, deflate":                   "br",   // fetch of Node
		"br":                                  "br",
		"*":                                   "zstd",
		"*;q=0":                               "",
		"zstd;q=0, *":                         "br",
		"gzip;q=0.5, br;q=1.0":                "br",
		"GZIP;Q=0.5":                          "gzip",
		"x-gzip":                              "gzip",
		"gzip;q=0":                            "",
		"gzip;q=0.5, identity;q=1":            "",
		"gzip;q=0.5, identity;q=0.5":          "gzip",
		"gzip, identity":                      "gzip",
		"identity;q=0, gzip;q=0.1":            "gzip",
		"gzip;q=2":                            "",
		"gzip;q=NaN":                          "",
		"gzip;q=":                             "",
		" ,, gzip ;  q=0.3 ; x=1 , ;q=1":      "gzip",
		strings.Repeat("x,", 5000) + "br;q=1": "br",
	} {
		require.Equal(t, want, Choose(accept), accept)
	}
}

func FuzzChoose(f *testing.F) {
	f.Add("gzip;q=0.5, br;q=1.0")
	f.Fuzz(func(t *testing.T, accept string) {
		if c := Choose(accept); c != "" && !strings.Contains(strings.ToLower(accept), string(c)) && !strings.Contains(accept, "*") {
			t.Fatalf("%q is not in %q", c, accept)
		}
	})
}

func decoder(t *testing.T, c Coding, r io.Reader) io.Reader {
	t.Helper()
	switch c {
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		require.NoError(t, err)
		t.Cleanup(d.Close)
		return d
	case "gzip":
		d, err := gzip.NewReader(r)
		require.NoError(t, err)
		return d
	}
	return brotli.NewReader(r)
}

// What is decoded is what was encoded, in whatever pieces, also by an encoder that was given back in the middle of an answer; and each piece can be decoded before
// the next one exists.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range codings {
		p := NewPool(1)
		for range 20 {
			e := p.Begin(c)
			require.Equal(t, c, e.Coding)
			require.Nil(t, p.Begin(c), "there is one")
			r, w := io.Pipe()
			go func() { // readers of decoders ask for their first bytes at once
				if _, err := w.Write(e.Append(nil, []byte("begin"), false)); err != nil {
					t.Error(err)
				}
			}()
			d := decoder(t, c, r)
			read := func(n int) string {
				b := make([]byte, n)
				_, err := io.ReadFull(d, b)
				require.NoError(t, err)
				return string(b)
			}
			require.Equal(t, "begin", read(5))
			for range rng.IntN(4) {
				piece := bytes.Repeat([]byte(fmt.Sprint(rng.Int64())), rng.IntN(20_000))
				out := e.Append([]byte("head"), piece, false)
				require.Equal(t, "head", string(out[:4]))
				go func() { _, _ = w.Write(out[4:]) }()
				require.Equal(t, string(piece), read(len(piece)))
			}
			if rng.IntN(2) == 0 {
				out := e.Append(nil, []byte("end"), true)
				go func() {
					_, _ = w.Write(out)
					w.Close()
				}()
				rest, err := io.ReadAll(d)
				require.NoError(t, err)
				require.Equal(t, "end", string(rest))
			}
			r.Close()
			e.Release()
		}
	}
	require.Nil(t, NewPool(1).Begin(""))
	require.Nil(t, NewPool(1).Begin("deflate"))
}

// A history of ten entries that hold mostly the same 400 messages.
func history() []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("all work and no play makes jack a dull boy but the agent said that it would call a tool with these arguments first")
	var messages []string
	for i := range 400 {
		var text []string
		for range 20 + rng.IntN(60) {
			text = append(text, words[rng.IntN(len(words))])
		}
		messages = append(messages, fmt.Sprintf(`{"content":%q,"type":"ai","id":"%016x-%d"}`, strings.Join(text, " "), rng.Uint64(), i))
	}
	var b bytes.Buffer
	for i := range 10 {
		b.WriteString(`{"values":{"messages":[` + strings.Join(messages[:400-i], ",") + "]}}")
	}
	return b.Bytes()
}

func BenchmarkAppend(b *testing.B) {
	src := history()
	for _, c := range codings {
		b.Run(string(c), func(b *testing.B) {
			p := NewPool(1)
			b.SetBytes(int64(len(src)))
			var out []byte
			for b.Loop() {
				e := p.Begin(c)
				out = e.Append(out[:0], src, true)
				e.Release()
			}
			b.ReportMetric(float64(len(src))/float64(len(out)), "times")
		})
	}
}
