package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// raw sends bytes and gives the statuses of all answers, until the server closes the connection. half ends the sending side first.
func raw(t *testing.T, w *world, text string, half bool) []int {
	t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	if half {
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	}
	var statuses []int
	for in := bufio.NewReader(conn); ; {
		if _, err := in.Peek(1); err != nil {
			require.ErrorIs(t, err, io.EOF, "%q: the connection stays open", text)
			return statuses
		}
		res, err := http.ReadResponse(in, nil)
		require.NoError(t, err, text)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err, text)
		statuses = append(statuses, res.StatusCode)
	}
}

// A request that another server could take for two, or for another one, is refused, and nothing behind it is read. LangGraph Server refuses the same.
func TestFraming(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const head, end = "POST /threads HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n", "Connection: close\r\n\r\n"
	const next = "GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for name, text := range map[string]string{
		"two lengths, the first for the body":  head + fmt.Sprintf("Content-Length: 2\r\nContent-Length: %d\r\n\r\n{}", 2+len(next)) + next,
		"two lengths, the second for the body": head + fmt.Sprintf("Content-Length: %d\r\nContent-Length: 2\r\n\r\n{}", 2+len(next)) + next,
		"a length that never comes":            head + "Content-Length: 2\r\nContent-Length: 3000\r\n\r\n{}",
		"two equal lengths":                    head + "Content-Length: 2\r\ncontent-length: 2\r\n\r\n{}" + next,
		"length and chunks":                    head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"chunks and length":                    head + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"length and an unknown coding":         head + "Content-Length: 2\r\nTransfer-Encoding: xchunked\r\n\r\n{}" + next,
		"an unknown coding":                    head + "Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"chunks that are not the last coding":  head + "Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"identity and length":                  head + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}" + next,
		"chunks twice":                         head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"a line with LF alone":                 head + "X-A: b\nContent-Length: 2\r\n\r\n{}" + next,
		"LF alone in all lines":                strings.ReplaceAll(head+"Content-Length: 2\r\n\r\n{}", "\r", ""),
		"LF alone at the end":                  head + "Content-Length: 2\r\n\n{}" + next,
		"CR alone in a value":                  head + "X-A: a\rContent-Length: 30\r\nContent-Length: 2\r\n\r\n{}" + next,
		"NUL in a value":                       head + "X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}" + next,
		"a control character in a value":       head + "X-A: a\x01b\r\nContent-Length: 2\r\n\r\n{}" + next,
		"DEL in a value":                       head + "X-A: a\x7fb\r\nContent-Length: 2\r\n\r\n{}" + next,
		"a folded line":                        head + "X-A: a\r\n Content-Length: 30\r\nContent-Length: 2\r\n\r\n{}" + next,
		"no name":                              head + ": a\r\nContent-Length: 2\r\n\r\n{}" + next,
		"no colon":                             head + "XA\r\nContent-Length: 2\r\n\r\n{}" + next,
		"a blank before the colon":             head + "Content-Length : 2\r\n\r\n{}" + next,
		"brackets in a name":                   head + "X(A): a\r\nContent-Length: 2\r\n\r\n{}" + next,
		"CR in the path":                       "GET /ok\rX HTTP/1.1\r\nHost: x\r\n\r\n" + next,
		"a control character in the path":      "GET /ok\x01 HTTP/1.1\r\nHost: x\r\n\r\n" + next,
	} {
		require.Equal(t, []int{400}, raw(t, w, text, false), name)
	}
	require.Nil(t, w.last())
	for name, text := range map[string]string{
		"a length":             head + "Content-Length:  2 \r\n" + end + "{}",
		"chunks":               head + "Transfer-Encoding: chunked\r\n" + end + "1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n",
		"chunks, capitals":     head + "Transfer-Encoding: CHUNKED\r\n" + end + "2\r\n{}\r\n0\r\nX-T: 1\r\n\r\n",
		"two codings":          head + "Transfer-Encoding: identity, chunked\r\n" + end + "2\r\n{}\r\n0\r\n\r\n",
		"a tab and Latin":      head + "X-A: a\tb\xff\r\nContent-Length: 2\r\n" + end + "{}",
		"two of other headers": head + "X-A: 1\r\nX-A: 2\r\nContent-Length: 2\r\n" + end + "{}",
		"no headers at all":    "GET /ok HTTP/1.0\r\n\r\n",
	} {
		require.Equal(t, []int{200}, raw(t, w, text, false), name)
	}
}

// A body that ends before its last chunk is not acted upon, wherever it breaks off. One that is whole is, also when its sender sends no more.
func TestChunksThatBreakOff(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const head = "POST /threads HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	const body = "2\r\n{}\r\n1\r\n \r\n0\r\n\r\n"
	for n := range len(body) {
		statuses := raw(t, w, head+body[:n], true)
		for _, s := range statuses {
			require.Equal(t, 400, s, "%q", body[:n])
		}
		require.Nil(t, w.last(), "%q", body[:n])
	}
	require.Equal(t, []int{200}, raw(t, w, head+body, true))
	require.NotNil(t, w.last())
}
