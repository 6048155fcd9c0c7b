package files

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

// sent is the file of a request.
type sent struct {
	name string
	over bool
}

func (s *sent) Next() (string, io.Reader, error) {
	if s.over {
		return "", nil, io.EOF
	}
	s.over = true
	return s.name, strings.NewReader("text"), nil
}

// Requests that upload, delete and list the same files at the same time succeed, or do not find a file. Nothing is left of what was deleted.
func TestUploadsAndDeletesAtOnce(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	converted := func(_ context.Context, _ *os.File, _ string, to io.Writer) error {
		_, err := io.WriteString(to, "# text")
		return err
	}
	act := map[string]func(*Thread) error{
		"upload": func(th *Thread) error {
			taken, skipped, err := th.Take(t.Context(), &sent{name: "a.docx"}, Limits{Files: 1, FileSize: 100, Total: 100}, converted)
			if err == nil && (len(taken) != 1 || len(skipped) != 0 || taken[0].Modified.IsZero()) {
				return errors.New("not one file was taken")
			}
			return err
		},
		"delete": func(th *Thread) error {
			if err := th.Delete("a.docx"); !fault.Is(err, fault.NotFound) {
				return err
			}
			return nil
		},
		"list": func(th *Thread) error {
			_, err := th.List()
			return err
		},
	}
	_, err := h.Thread("ann", "t", true)
	require.NoError(t, err)
	var working sync.WaitGroup
	for name, do := range act {
		for range 3 {
			working.Go(func() {
				for range 300 {
					th, err := h.Thread("ann", "t", true) // each request opens it
					if err == nil {
						err = errors.Join(do(th), th.Close())
					}
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	working.Wait()
	left, err := filepath.Glob(filepath.Join(h.ThreadDir("ann", "t"), "user-data", "uploads", "."+"*"))
	require.NoError(t, err)
	require.Empty(t, left, "files of uploads in progress")
}
