package backend

import (
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
)

func TestMirrorNeedsADataFolder(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), &config.Config{Storage: config.Storage{DatabaseURL: "postgres://h/d"}, History: config.History{JSONL: "files"}}, Options{})
	require.ErrorContains(t, err, "history.jsonl")
}

// A start that waits for a database says for which, before it gives up.
func TestOpenSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	log := make(lines, 10)
	_, err = Open(t.Context(), &config.Config{Storage: config.Storage{DatabaseURL: "postgres://me:secret@" + l.Addr().String() + "/d?sslmode=disable"}},
		Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	require.ErrorContains(t, err, "no answer in time")
	line := <-log
	require.Contains(t, line, `database="d on `+l.Addr().String())
	require.NotContains(t, line, "secret")
}

// lines is a log whose lines can be waited for.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
