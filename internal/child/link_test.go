package child

import (
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func loopbackLink(t *testing.T) *link {
	t.Helper()
	before := Loopback
	Loopback = true
	defer func() { Loopback = before }()
	l, err := newLink()
	require.NoError(t, err)
	t.Cleanup(l.close)
	return l
}

func dial(t *testing.T, l *link) (net.Conn, error) {
	t.Helper()
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(l.where.Port))) //nolint:noctx // this machine
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// Only a worker that has the secret is let in, whoever came before it; then the port is closed.
func TestLoopbackLetsNobodyElseIn(t *testing.T) { //nolint:paralleltest // sets how links are made
	l := loopbackLink(t)
	type end struct {
		conn net.Conn
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		conn, err := l.connect()
		ended <- end{conn, err}
	}()
	for _, said := range []string{"", l.where.Secret[1:], "x" + l.where.Secret[1:], l.where.Answer} {
		stranger, err := dial(t, l)
		require.NoError(t, err)
		_, err = io.WriteString(stranger, said)
		require.NoError(t, err)
		if len(said) == len(l.where.Secret) {
			got, _ := io.ReadAll(stranger) // a reset is an end too
			require.Empty(t, got)
		}
	}
	worker, err := dial(t, l)
	require.NoError(t, err)
	_, err = io.WriteString(worker, l.where.Secret+"hello")
	require.NoError(t, err)
	got := make([]byte, len(l.where.Answer))
	_, err = io.ReadFull(worker, got)
	require.NoError(t, err)
	require.Equal(t, l.where.Answer, string(got))
	its := <-ended
	require.NoError(t, its.err)
	got = got[:5]
	_, err = io.ReadFull(its.conn, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	_, err = dial(t, l)
	require.Error(t, err)
}

// The wait for a worker that never connects ends with it.
func TestLoopbackOfAWorkerThatDied(t *testing.T) { //nolint:paralleltest // sets how links are made
	l := loopbackLink(t)
	ended := make(chan error, 1)
	go func() {
		_, err := l.connect()
		ended <- err
	}()
	stranger, err := dial(t, l)
	require.NoError(t, err)
	l.expectNone()
	require.ErrorIs(t, <-ended, net.ErrClosed)
	got, _ := io.ReadAll(stranger)
	require.Empty(t, got)
}
