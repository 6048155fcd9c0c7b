package connection

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// troubled fails as configured before it returns connections.
type troubled struct {
	net.Listener
	errs []error
}

func (l *troubled) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	return nil, nil
}

func (l *troubled) Close() error { return nil }

func TestAcceptRetries(t *testing.T) {
	t.Parallel()
	full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	var log strings.Builder
	p := NewPatient(&troubled{errs: []error{full, full, full}}, slog.New(slog.NewTextHandler(&log, nil)))
	_, err := p.Accept()
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(log.String(), "too many open files"), "said once")

	broken := errors.New("broken")
	_, err = NewPatient(&troubled{errs: []error{full, broken}}, slog.New(slog.DiscardHandler)).Accept()
	require.Equal(t, broken, err)

	p = NewPatient(&troubled{errs: []error{full}}, slog.New(slog.DiscardHandler))
	require.NoError(t, p.Close())
	_, err = p.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}
