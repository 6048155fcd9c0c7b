package skill

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

const front = "---\nname: demo\ndescription: Shows.\n---\nDo it.\n"

type file struct {
	name, text string
	mode       fs.FileMode
}

func zipped(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		if f.mode != 0 {
			h.SetMode(f.mode)
		}
		out, err := w.CreateHeader(h)
		require.NoError(t, err)
		_, err = out.Write([]byte(f.text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

type shelf struct {
	*Library
	dir    string
	judged []string
}

func library(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{dir: t.TempDir()}
	s.Library = &Library{
		Root: func() (string, error) { return filepath.Join(s.dir, "shared"), nil }, User: func(user string) string { return filepath.Join(s.dir, "users", user) },
		Enabled: func(string, *Skill) (bool, error) { return true, nil }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Judge: func(_ context.Context, where, content string, _ bool) (Verdict, error) {
			s.judged = append(s.judged, where)
			if strings.Contains(content, "EVIL") {
				return Verdict{"block", "evil"}, nil
			}
			if strings.Contains(content, "BROKEN") {
				return Verdict{}, errors.New("no model")
			}
			return Verdict{Decision: "allow"}, nil
		},
	}
	return s
}

func (s *shelf) install(t *testing.T, archive []byte) (string, error) {
	t.Helper()
	return s.Install(t.Context(), "u", bytes.NewReader(archive), int64(len(archive)))
}

// files returns all that is below the test's folder.
func (s *shelf) files(t *testing.T) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Dir(s.dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, strings.TrimPrefix(path, s.dir+"/"))
		}
		return err
	}))
	return list
}

// What an archive must not have is refused, and leaves nothing behind: neither files nor folders of its own.
func TestRefusedArchives(t *testing.T) {
	t.Parallel()
	good := file{name: "demo/SKILL.md", text: front}
	encrypted := zipped(t, good, file{name: "demo/a.txt", text: "x"})
	encrypted[bytes.LastIndex(encrypted, []byte("PK\x01\x02"))+8] |= 1
	for name, archive := range map[string][]byte{
		"no archive":        []byte("PK nothing"),
		"empty":             {},
		"no skill":          zipped(t, file{name: "a.txt", text: "x"}),
		"climbs":            zipped(t, good, file{name: "../climb.txt", text: "x"}),
		"climbs within":     zipped(t, good, file{name: "demo/../../climb.txt", text: "x"}),
		"climbs first":      zipped(t, file{name: "../../climb.txt", text: "x"}, good),
		"absolute":          zipped(t, good, file{name: "/tmp/understudy-absolute.txt", text: "x"}),
		"backslashes":       zipped(t, good, file{name: `..\climb.txt`, text: "x"}),
		"a drive":           zipped(t, good, file{name: "C:/climb.txt", text: "x"}),
		"dots":              zipped(t, good, file{name: "demo/./a.txt", text: "x"}),
		"no name":           zipped(t, good, file{name: "demo//a.txt", text: "x"}),
		"a null character":  zipped(t, good, file{name: "demo/a\x00.txt", text: "x"}),
		"a control":         zipped(t, good, file{name: "demo/a\x1b[31m.txt", text: "x"}),
		"a line":            zipped(t, good, file{name: "demo/a\nb.txt", text: "x"}),
		"turned around":     zipped(t, good, file{name: "demo/\u202etxt.exe", text: "x"}),
		"a long part":       zipped(t, good, file{name: "demo/" + strings.Repeat("x", 256), text: "x"}),
		"deep":              zipped(t, good, file{name: "demo/" + strings.Repeat("d/", 20) + "a.txt", text: "x"}),
		"long":              zipped(t, good, file{name: "demo/" + strings.Repeat("x", 600), text: "x"}),
		"two skills":        zipped(t, good, file{name: "demo/inner/SKILL.md", text: front}),
		"skill by its case": zipped(t, good, file{name: "demo/skill.md", text: front}),
		"the same twice":    zipped(t, good, file{name: "demo/a.txt", text: "x"}, file{name: "demo/a.txt", text: "y"}),
		"the same by case":  zipped(t, good, file{name: "demo/a.txt", text: "x"}, file{name: "demo/A.txt", text: "y"}),
		"file and folder":   zipped(t, good, file{name: "demo/a", text: "x"}, file{name: "demo/a/b.txt", text: "y"}),
		"folder by case":    zipped(t, good, file{name: "demo/a", text: "x"}, file{name: "demo/A/b.txt", text: "y"}),
		"the same by form":  zipped(t, good, file{name: "demo/\u00e9.txt", text: "x"}, file{name: "demo/e\u0301.txt", text: "y"}),
		"encrypted":         encrypted,
		"long script":       zipped(t, good, file{name: "demo/scripts/run.sh", text: strings.Repeat("#", maxJudged) + "EVIL"}),
		"no UTF-8":          zipped(t, good, file{name: "demo/a.md", text: "\xff\xfe"}),
		"evil":              zipped(t, file{name: "demo/SKILL.md", text: front + "EVIL"}),
		"evil script":       zipped(t, good, file{name: "demo/scripts/run.sh", text: "EVIL"}),
		"not judged":        zipped(t, file{name: "demo/SKILL.md", text: front + "BROKEN"}),
		"skill is a link":   zipped(t, file{name: "demo/SKILL.md", text: "/etc/passwd", mode: fs.ModeSymlink | 0o777}),
	} {
		s := library(t)
		_, err := s.install(t, archive)
		var refused *Refused
		require.ErrorAs(t, err, &refused, name)
		require.Empty(t, s.files(t), name)
		require.NoFileExists(t, "/tmp/understudy-absolute.txt")
	}
}

// Links do not come along, wherever they point, and what is next to them does.
func TestLinksAreLeftOut(t *testing.T) {
	t.Parallel()
	s := library(t)
	link := fs.ModeSymlink | 0o777
	name, err := s.install(t, zipped(t, file{name: "demo/SKILL.md", text: front}, file{name: "demo/a.txt", text: "x"}, file{name: "demo/passwd", text: "/etc/passwd", mode: link},
		file{name: "demo/up", text: "../../..", mode: link}, file{name: "demo/up/b.txt", text: "through a link"}, file{name: "demo/pipe", mode: fs.ModeNamedPipe | 0o600}))
	require.NoError(t, err)
	require.Equal(t, "demo", name)
	require.ElementsMatch(t, []string{"users/u/demo/SKILL.md", "users/u/demo/a.txt", "users/u/demo/up/b.txt"}, s.files(t))
	_, err = s.install(t, zipped(t, file{name: "demo/SKILL.md", text: front}))
	require.True(t, fault.Is(err, fault.Conflict))
}

// Archives that unpack to too much are refused by what they claim, and by what they have: whichever is more.
func TestBombs(t *testing.T) {
	t.Parallel()
	many := []file{{name: "demo/SKILL.md", text: front}}
	for i := range maxFiles {
		many = append(many, file{name: fmt.Sprintf("demo/%d", i)})
	}
	s := library(t)
	_, err := s.install(t, zipped(t, many...))
	require.ErrorContains(t, err, "more than 5000")

	honest := zipped(t, file{name: "demo/SKILL.md", text: front}, file{name: "demo/zeros.bin", text: strings.Repeat("\x00", 8<<20)})
	lying := bytes.Clone(honest) // the table claims that the file is small
	at := bytes.LastIndex(lying, []byte("PK\x01\x02"))
	require.Positive(t, at)
	copy(lying[at+24:at+28], []byte{16, 0, 0, 0})
	_, err = s.install(t, lying)
	var refused *Refused
	require.ErrorAs(t, err, &refused)
	require.Empty(t, s.files(t))

	claims := bytes.Clone(honest) // the table claims 3 GiB
	copy(claims[at+24:at+28], []byte{0, 0, 0, 0xc0})
	_, err = s.install(t, claims)
	require.ErrorContains(t, err, "too large")
	require.Empty(t, s.files(t))
	_, err = s.install(t, zipped(t, file{name: "demo/SKILL.md", text: front + strings.Repeat("x", maxMarkdown)}))
	require.ErrorAs(t, err, &refused)
}

// A large file is judged by its beginning, and only that is read.
func TestLargeReference(t *testing.T) { // measures what all goroutines allocate, so nothing else may run
	s := library(t)
	archive := zipped(t, file{name: "demo/SKILL.md", text: front}, file{name: "demo/references/large.txt", text: strings.Repeat("a", 128<<20)},
		file{name: "demo/scripts/run.sh", text: strings.Repeat("#", maxJudged)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := s.install(t, archive)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// Whatever bytes of an archive are changed: it is refused, or all that it leaves is in the folder of its skill.
func TestDamagedArchives(t *testing.T) {
	t.Parallel()
	good := zipped(t, file{name: "demo/SKILL.md", text: front}, file{name: "demo/dir/a.txt", text: strings.Repeat("text ", 100)})
	s := library(t)
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 3))
		damaged := bytes.Clone(good)
		for range 1 + random.IntN(4) {
			damaged[random.IntN(len(damaged))] = byte(random.IntN(256))
		}
		name, err := s.install(t, damaged)
		for _, f := range s.files(t) {
			require.True(t, err == nil && strings.HasPrefix(f, "users/u/"+name+"/"), "seed %d: %s", seed, f)
		}
		require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "users")))
	}
}
