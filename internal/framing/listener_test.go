package framing_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/framing"
	"understudy/internal/framingtest"
)

// pieces is a connection on which bytes come in random pieces.
type pieces struct {
	net.Conn
	rnd  *rand.Rand
	left []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := min(len(b), len(p.left), 1+p.rnd.IntN(1+p.rnd.IntN(60)))
	copy(b, p.left[:n])
	p.left = p.left[n:]
	return n, nil
}

type one struct {
	net.Listener
	c net.Conn
}

func (l one) Accept() (net.Conn, error) { return l.c, nil }

func through(t *testing.T, rnd *rand.Rand, text string) string {
	t.Helper()
	c, err := framing.Listen(one{c: &pieces{rnd: rnd, left: []byte(text)}}).Accept()
	require.NoError(t, err)
	var out bytes.Buffer
	buf := make([]byte, 1+rnd.IntN(100))
	_, err = io.CopyBuffer(struct{ io.Writer }{&out}, struct{ io.Reader }{c}, buf)
	require.NoError(t, err)
	return out.String()
}

// In whatever pieces they come, requests that are taken pass as they are, many on one connection; and of the first that is refused, and what follows it,
// nothing passes.
func TestPieces(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		good := ""
		for range rnd.IntN(4) {
			for _, text := range framingtest.Taken() { // in any order
				good += text
				if rnd.IntN(3) == 0 {
					good += "\r\n"
				}
				if rnd.IntN(2) == 0 {
					break
				}
			}
		}
		require.Equal(t, good, through(t, rnd, good))
		for name, text := range framingtest.Refused() {
			got := through(t, rnd, good+text)
			rest, ok := strings.CutPrefix(got, good)
			require.True(t, ok, name)
			// A head that is refused does not pass at all; one that is odd behind its end in part.
			require.NotContains(t, rest, "GET /ok HTTP", name)
			require.True(t, strings.HasSuffix(rest, "\x00 refused\r\n\r\n") || !strings.Contains(rest, "\r\n\r\n"), "%s: %q", name, rest)
		}
	}
}

// What follows an upgrade is of another protocol.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	const text = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05\nhe\x00l\r\n\r\n"
	for seed := range uint64(50) {
		require.Equal(t, text, through(t, rand.New(rand.NewPCG(seed, 4)), text))
	}
}

// Bytes of any kind neither break it nor pass changed: what comes out is what came in, up to where it is refused.
func FuzzConn(f *testing.F) {
	for _, all := range []map[string]string{framingtest.Taken(), framingtest.Refused()} {
		for _, text := range all {
			f.Add(text, uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		got := strings.TrimSuffix(through(t, rand.New(rand.NewPCG(seed, 5)), text), "\x00 refused\r\n\r\n")
		require.True(t, strings.HasPrefix(text, got))
		require.Equal(t, got, strings.TrimSuffix(through(t, rand.New(rand.NewPCG(seed, 6)), text), "\x00 refused\r\n\r\n"))
	})
}
