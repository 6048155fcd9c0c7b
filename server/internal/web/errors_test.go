package web

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

// A file that a full disk or quota does not take is explained to clients, wherever it was written; a better explanation stays.
func TestFullDiskIsExplained(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		write := fmt.Errorf("write an upload: %w", &fs.PathError{Op: "write", Path: "/data/secret", Err: cause})
		for _, err := range []error{write, errors.Join(errors.New("close"), write), fault.Wrap(fault.Internal, "storage", write)} {
			status, text, worth := Explain(err)
			require.Equal(t, http.StatusServiceUnavailable, status, err)
			require.Equal(t, textFull, text)
			require.True(t, worth)
			what, passing := passes(err)
			require.True(t, passing)
			require.Equal(t, textFull, what, "a line for all of them")
		}
		status, text, _ := Explain(fault.Wrap(fault.TooLarge, "File too large", write))
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		require.Equal(t, "File too large", text)
	}
	status, _, _ := Explain(syscall.EIO)
	require.Equal(t, http.StatusInternalServerError, status)
}
