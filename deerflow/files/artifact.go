package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"mime"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"understudy/internal/fault"
	"understudy/internal/regular"
)

// Artifact is a file as it is shown to a browser.
type Artifact struct {
	io.ReadSeekCloser
	Name     string // of the file, without its folder
	Type     string // media type
	Size     int64
	Modified time.Time
	Tag      string // changes with the contents: an entity tag without quotes
	Active   bool   // a browser might run what is in it: it is only ever sent as a download
	Member   bool   // of a skill's archive
}

const (
	maxMember   = 16 << 20 // bytes of a member of an archive, unpacked
	maxArchive  = 64 << 20 // bytes of an archive whose members are shown
	maxMembers  = 5000
	sniffed     = 8192
	skillSuffix = ".skill"
)

// Artifact opens a file by its path as an agent sees it, or a member of a skill's archive (a.skill/SKILL.md). The caller closes it.
func (t *Thread) Artifact(virtual string) (*Artifact, error) {
	name, err := Name(virtual)
	if err != nil {
		return nil, err
	}
	shown := strings.TrimLeft(virtual, "/")
	if archive, member, ok := strings.Cut(name, skillSuffix+"/"); ok {
		return t.member(archive+skillSuffix, member, shown)
	}
	f, info, err := t.Open(name, shown)
	if err != nil {
		return nil, err
	}
	a := &Artifact{ReadSeekCloser: f, Name: path.Base(name), Size: info.Size(), Modified: info.ModTime(), Tag: fmt.Sprintf("%x-%x", info.ModTime().UnixNano(), info.Size())}
	return a, a.classify(f)
}

// types that are not left to the table of the system.
var types = map[string]string{
	".md": "text/markdown", ".markdown": "text/markdown", ".csv": "text/csv", ".txt": "text/plain", ".log": "text/plain", ".json": "application/json",
	".yaml": "application/yaml", ".yml": "application/yaml", ".py": "text/x-python", ".ts": "text/plain", ".go": "text/plain", ".js": "text/javascript",
	".html": "text/html", ".htm": "text/html", ".xhtml": "application/xhtml+xml", ".svg": "image/svg+xml", ".xml": "application/xml", ".xsl": "application/xml", ".mhtml": "multipart/related",
	".mht": "multipart/related", ".pdf": "application/pdf", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".zip":  "application/zip", ".skill": "application/zip", ".mp4": "video/mp4", ".mp3": "audio/mpeg", ".wav": "audio/wav",
}

// active are the media types in which a browser runs scripts, XML because of elements of XHTML in it.
func active(kind string) bool {
	base, _, _ := strings.Cut(kind, ";")
	switch base = strings.TrimSpace(base); base {
	case "text/html", "application/xhtml+xml", "image/svg+xml", "application/xml", "text/xml", "multipart/related", "message/rfc822", "application/javascript":
		return true
	}
	return strings.HasSuffix(base, "+xml") || strings.HasPrefix(base, "image/svg")
}

// classify finds the media type, by the name, or else by the beginning of the contents, and returns to the beginning.
func (a *Artifact) classify(r io.ReadSeeker) error {
	ext := strings.ToLower(path.Ext(a.Name))
	if a.Type = types[ext]; a.Type == "" {
		a.Type = mime.TypeByExtension(ext)
	}
	if a.Type == "" {
		head := make([]byte, sniffed)
		n, err := io.ReadFull(r, head)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read %s: %w", a.Name, err)
		}
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read %s: %w", a.Name, err)
		}
		if a.Type = "application/octet-stream"; bytes.IndexByte(head[:n], 0) < 0 {
			a.Type = "text/plain"
		}
	}
	a.Active = active(a.Type)
	return nil
}

// maxEdit bounds texts that are edited, in bytes.
const maxEdit = 2 << 20

// ErrChanged: the file is not what the client has seen.
var ErrChanged = errors.New("the file was changed meanwhile")

// ErrNoEdit: the file is not a text that can be edited.
var ErrNoEdit = errors.New("only plain text files can be edited")

// Edited describes a file after an edit.
type Edited struct {
	Path string // as an agent sees it
	Sum  string // SHA-256 in hex
	Size int
}

var (
	editing  [64]sync.Mutex
	editSeed = maphash.MakeSeed()
)

// edits orders the edits of a thread's files: two must not both find what they have seen. Several paths can lead to a file, through links to folders.
func (t *Thread) edits() *sync.Mutex {
	return &editing[maphash.String(editSeed, t.root.Name())%uint64(len(editing))]
}

// Edit replaces the contents of a text in the folder outputs, if it still has the SHA-256 that the client has seen; ErrChanged. Of several at once that have seen the same one
// is done.
func (t *Thread) Edit(virtual, content, expected string) (*Edited, error) {
	name, err := Name(virtual)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(name, Outputs+"/") {
		return nil, fault.New(fault.Invalid, "Only files in "+Virtual+"/"+Outputs+" can be edited")
	}
	if len(content) > maxEdit {
		return nil, fault.New(fault.TooLarge, "The text is too large to edit")
	}
	turn := t.edits()
	turn.Lock()
	defer turn.Unlock()
	at := filepath.FromSlash(name)
	info, err := t.root.Lstat(at)
	if err != nil {
		return nil, t.explain(err, name, strings.TrimLeft(virtual, "/"))
	}
	if !info.Mode().IsRegular() || names(info) > 1 || info.Size() > maxEdit || strings.HasSuffix(name, skillSuffix) {
		return nil, ErrNoEdit
	}
	old, err := t.read(at)
	if errors.Is(err, regular.ErrNot) {
		return nil, ErrNoEdit
	}
	if err != nil {
		return nil, t.explain(err, name, strings.TrimLeft(virtual, "/"))
	}
	if bytes.IndexByte(old, 0) >= 0 || !utf8.Valid(old) {
		return nil, ErrNoEdit
	}
	if sum(old) != strings.ToLower(expected) {
		return nil, ErrChanged
	}
	if err := t.replace(at, []byte(content), info.Mode().Perm()); err != nil {
		return nil, fmt.Errorf("edit %s: %w", name, err)
	}
	return &Edited{Path: Virtual + "/" + name, Sum: sum([]byte(content)), Size: len(content)}, nil
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// replace writes a file next to its place and renames it, so that readers see one version or the other.
func (t *Thread) replace(at string, content []byte, mode fs.FileMode) error {
	return regular.Replace(t.root, at, staging, content, mode)
}

// read returns a file that may be edited.
func (t *Thread) read(at string) ([]byte, error) {
	f, _, err := regular.Open(t.root, at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxEdit+1))
}
