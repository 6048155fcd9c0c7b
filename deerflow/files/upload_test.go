package files

import (
	"context"
	"errors"
	"fmt"
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

// A document that cannot be converted is taken all the same, with the reason; one whose Markdown has no place, too.
func TestDocumentsWithoutMarkdown(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	th, err := h.Thread("ann", "t", true)
	require.NoError(t, err)
	defer th.Close()
	limits := Limits{Files: 1, FileSize: 100, Total: 100}
	for _, c := range []struct {
		name    string
		convert Converter
		want    Upload
	}{
		{"a.pdf", func(context.Context, *os.File, string, io.Writer) error { return &NoText{"it is a scan"} }, Upload{Name: "a.pdf", Size: 4, Problem: "it is a scan"}},
		{"b.pdf", func(_ context.Context, _ *os.File, _ string, to io.Writer) error {
			_, err := io.WriteString(to, "x")
			return err
		}, Upload{Name: "b.pdf", Size: 4, Markdown: "b.md"}},
		{"c.pdf", func(_ context.Context, _ *os.File, _ string, to io.Writer) error {
			return os.Mkdir(filepath.Join(h.ThreadDir("ann", "t"), "user-data", "uploads", "c.md"), 0o700)
		}, Upload{Name: "c.pdf", Size: 4, Problem: "the place of c.md is taken by something that is no plain file"}},
		{"d.pdf", nil, Upload{Name: "d.pdf", Size: 4}},
		{"e.txt", func(context.Context, *os.File, string, io.Writer) error { panic("it is no document") }, Upload{Name: "e.txt", Size: 4}},
	} {
		taken, skipped, err := th.Take(t.Context(), &sent{name: c.name}, limits, c.convert)
		require.NoError(t, err)
		require.Empty(t, skipped)
		require.Len(t, taken, 1)
		taken[0].Modified = c.want.Modified
		require.Equal(t, c.want, taken[0])
	}
	_, _, err = th.Take(t.Context(), &sent{name: "f.pdf"}, limits, func(context.Context, *os.File, string, io.Writer) error { return errors.New("no process") })
	require.ErrorContains(t, err, "no process")
}

// All names of one request get free names that files can have, whatever their types and lengths are; the number stands before the type.
func TestFreeNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a_12.txt", numbered("a.txt", 12))
	for _, letter := range []string{"a", "é", "語", "👩"} {
		for _, stem := range []int{0, 1, 100, 249, 250, 254, 255} {
			for _, ext := range []int{0, 1, 2, 100, 127, 128, 253, 254, 255} {
				base := strings.Repeat(letter, stem/len(letter)) + "." + strings.Repeat(letter, ext/len(letter))
				if Clean(base) == "" {
					continue
				}
				u := &taking{used: map[string]bool{}}
				for n := range 12 {
					name := u.free(base)
					require.Equal(t, name, Clean(name), "%q", base)
					require.True(t, n > 0 || name == base)
				}
				require.Len(t, u.used, 12)
			}
		}
	}
}

// Names that would show as something else, or break the lists of prompts, are passed over.
func TestNamesOfUploads(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "a/", "a\\b", "a\x00", "a\nb", "a\u0085b", "a\u2028b", "\u202egpj.exe", "a\xff", ".upload-1.part", strings.Repeat("a", 256)} {
		require.Empty(t, Clean(name), "%q", name)
	}
	for name, want := range map[string]string{"a.txt": "a.txt", "/etc/passwd": "passwd", "../../x": "x", "تقرير.pdf": "تقرير.pdf", "con": "con", "a b": "a b"} {
		require.Equal(t, want, Clean(name))
	}
}

// waiting is a request whose file arrives in two parts.
type waiting struct {
	begun, end chan struct{}
	over       bool
}

func (w *waiting) Next() (string, io.Reader, error) {
	if w.over {
		return "", nil, io.EOF
	}
	w.over = true
	return "a.txt", io.MultiReader(strings.NewReader("one "), readerFunc(func([]byte) (int, error) {
		close(w.begun)
		<-w.end
		return 0, io.EOF
	}), strings.NewReader("two")), nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A file that is being uploaded while its thread gets another owner is among the files of that owner, as a whole, and nothing is left with the former one.
func TestUploadWhileTheOwnerChanges(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	f, err := h.Thread("before", "t", true)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	w := &waiting{begun: make(chan struct{}), end: make(chan struct{})}
	done := make(chan error)
	go func() {
		_, _, err := f.Take(t.Context(), w, Limits{Files: 5, FileSize: 1000, Total: 1000}, nil)
		done <- err
	}()
	<-w.begun
	require.NoError(t, h.Move("before", "after", "t"))
	close(w.end)
	require.NoError(t, <-done)
	content, err := os.ReadFile(filepath.Join(h.ThreadDir("after", "t"), "user-data", "uploads", "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "one two", string(content))
	require.False(t, h.Has("before", "t"))
}

// A thread that is deleted while files are uploaded into it and copied from it is gone, and its uploads end because there is no such folder. Nothing fails otherwise.
func TestUploadsWhileTheThreadIsDeleted(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	var uploading, deleting sync.WaitGroup
	over := make(chan struct{})
	for range 4 {
		uploading.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				th, err := h.Thread("ann", "t", true)
				if err == nil {
					_, _, err = th.Take(t.Context(), &sent{name: "a.txt"}, Limits{Files: 1, FileSize: 100, Total: 100}, nil)
					err = errors.Join(err, th.Close())
				}
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Errorf("upload: %v", err)
					return
				}
			}
		})
	}
	uploading.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			default:
			}
			if err := h.Copy("ann", "t", fmt.Sprintf("copy-%d", n)); err != nil {
				t.Errorf("copy: %v", err)
				return
			}
		}
	})
	for range 2 {
		deleting.Go(func() {
			for range 300 {
				if _, err := h.Remove("ann", "t"); err != nil {
					t.Errorf("delete: %v", err)
					return
				}
			}
		})
	}
	deleting.Wait()
	close(over)
	uploading.Wait()
	_, err := h.Remove("ann", "t")
	require.NoError(t, err)
	require.False(t, h.Has("ann", "t"))
}
