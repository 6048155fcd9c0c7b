package files

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"understudy/internal/archive"
	"understudy/internal/fault"
)

// member opens a member of an archive, also below its only top folder.
func (t *Thread) member(name, inside, shown string) (_ *Artifact, err error) {
	f, info, err := t.Open(name, shown)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	missing := fault.Newf(fault.NotFound, "Artifact not found: %s", shown)
	if info.Size() > maxArchive {
		return nil, fault.New(fault.TooLarge, "Skill archive is too large to preview")
	}
	z, err := archive.Open(f, info.Size(), maxMembers)
	if err != nil {
		return nil, missing
	}
	found := find(z, inside)
	if found == nil {
		return nil, missing
	}
	size, err := unpacked(found)
	if size > maxMember {
		return nil, fault.New(fault.TooLarge, "Skill archive member is too large to preview")
	} else if err != nil {
		return nil, missing
	}
	a := &Artifact{
		ReadSeekCloser: &memberReader{archive: f, file: found}, Name: path.Base(inside), Size: size, Modified: info.ModTime(),
		Tag: fmt.Sprintf("%x-%x-%x", info.ModTime().UnixNano(), info.Size(), found.CRC32), Member: true,
	}
	return a, a.classify(a)
}

// find returns the plain file with a name, or with that name below the only top folder of the archive.
func find(z *zip.Reader, member string) *zip.File {
	var below *zip.File
	top, single := "", true
	for _, f := range z.File {
		first, rest, folder := strings.Cut(f.Name, "/")
		if !folder || top != "" && first != top {
			single = false
		}
		top = first
		if !f.Mode().IsRegular() {
			continue
		}
		if f.Name == member {
			return f
		}
		if rest == member {
			below = f
		}
	}
	if single {
		return below
	}
	return nil
}

// unpacked returns how large a member is; more than maxMember for any that is larger. Sizes in archives are claims, so what comes out is counted.
func unpacked(f *zip.File) (int64, error) {
	r, err := f.Open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return io.Copy(io.Discard, io.LimitReader(r, maxMember+1))
}

// memberReader reads a member of an archive. It unpacks while it is read, so that clients who read slowly do not keep members in memory.
type memberReader struct {
	archive *os.File
	file    *zip.File
	r       io.ReadCloser // nil before the first Read
}

func (m *memberReader) Read(b []byte) (int, error) {
	if m.r == nil {
		if _, err := m.Seek(0, io.SeekStart); err != nil {
			return 0, err
		}
	}
	return m.r.Read(b)
}

// Seek goes to a place counted from the beginning: it unpacks what is before it.
func (m *memberReader) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return 0, errors.ErrUnsupported
	}
	if err := m.stop(); err != nil {
		return 0, err
	}
	r, err := m.file.Open()
	if err != nil {
		return 0, err
	}
	m.r = r
	return io.CopyN(io.Discard, r, offset)
}

// stop ends reading.
func (m *memberReader) stop() error {
	if m.r == nil {
		return nil
	}
	err := m.r.Close()
	m.r = nil
	return err
}

// Close closes the archive as well.
func (m *memberReader) Close() error { return errors.Join(m.stop(), m.archive.Close()) }
