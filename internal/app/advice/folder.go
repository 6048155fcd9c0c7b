package advice

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"zombiezen.com/go/sqlite"

	"understudy/internal/owner"
	"understudy/internal/shell"
	storage "understudy/storage/sqlite"
)

// Target is the setting of a folder that is an argument of a command.
const Target = "TARGET"

// Folder explains why dir, which the setting names, cannot be worked in; nil if err says nothing of that.
func Folder(setting, dir string, err error) *Problem {
	at := storage.Existing(dir)
	info, statErr := os.Stat(at)
	another := "name another folder with " + setting
	if setting == Target {
		another = "name another folder as " + Target
	}
	problem := func(fix, format string, args ...any) *Problem {
		return &Problem{Text: setting + ": " + fmt.Sprintf(format, args...), Fix: fix, Err: err}
	}
	code := sqlite.ErrCode(err).ToPrimary()
	var inUse *storage.InUseError
	var noRoom *storage.NoRoomError
	switch {
	case err == nil, elsewhere(dir, err):
		return nil
	case errors.As(err, &inUse):
		return problem("stop it first, or give this one a folder of its own with "+setting, "the data folder %s is %v (%s)", inUse.Dir, storage.ErrInUse, inUse.Holder)
	case statErr == nil && !info.IsDir():
		return problem(another, "%s is not a folder", at)
	case errors.Is(err, syscall.EROFS), code == sqlite.ResultReadOnly:
		return problem("mount it for writing, or "+another, "%s is on a file system that is mounted read-only", at)
	case errors.As(err, &noRoom):
		return problem(fmt.Sprintf("free %s, or %s", storage.Megabytes(noRoom.Need-noRoom.Free), another), "the disk of %s has %s, and this needs %s", at, storage.Megabytes(noRoom.Free), storage.Megabytes(noRoom.Need))
	case errors.Is(err, syscall.EDQUOT):
		return problem("delete files of that user, or "+another, "the disk quota of user %d on %s is used up", os.Getuid(), at)
	case Full(err):
		return problem("free disk space, or "+another, "the disk of %s is full", at)
	case errors.Is(err, fs.ErrPermission):
		user := strconv.Itoa(os.Getuid())
		fix := fmt.Sprintf("make that user its owner (chown -R %s %s)", user, shell.Quote(at))
		if uid := uidOf(os.Stat(filepath.Join(at, "understudy.db"))); uid > 0 && uid != os.Getuid() { // most likely that of the service
			fix = fmt.Sprintf("run this as user %d (sudo -u '#%[1]d' understudy …), whose data it is", uid)
		}
		own := chmod(at, err)
		switch {
		case own != "":
			fix = own
		case at != filepath.Clean(dir): // a folder of others
			fix = fmt.Sprintf("make the folder for that user (install -d -m 700 -o %s %s)", user, shell.Quote(dir))
		}
		return problem(fix+", or "+another, "user %s may not write to %s (%s)", user, at, line(reason(err)))
	case errors.Is(err, fs.ErrNotExist):
		return problem(another, "no folder can be made in %s (%s)", at, line(reason(err)))
	}
	return nil
}

// Unwritable reports whether an error is of a disk that is full or mounted read-only, on which files can still be read.
func Unwritable(err error) bool {
	return Full(err) || sqlite.ErrCode(err).ToPrimary() == sqlite.ResultReadOnly || errors.Is(err, syscall.EROFS)
}

// Full reports whether an error is of a disk, or a share of it, that is full.
func Full(err error) bool {
	code := sqlite.ErrCode(err)
	return code.ToPrimary() == sqlite.ResultFull || code == sqlite.ResultIOErrSHMSize || errors.Is(err, storage.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// chmod returns what gives this user rights on a file or folder that is its own and lacks them: the folder, or what an error names; "" if that is not the cause.
func chmod(folder string, err error) string {
	var path *fs.PathError
	errors.As(err, &path)
	for _, name := range []string{folder, filepath.Dir(folder), pathOf(path)} {
		info, err := os.Stat(name)
		if uid := uidOf(info, err); err != nil || uid != os.Getuid() {
			continue
		}
		mode, rights := fs.FileMode(0o600), "u+rw"
		if info.IsDir() {
			mode, rights = 0o700, "u+rwx"
		}
		if info.Mode()&mode != mode {
			return fmt.Sprintf("give that user, its owner, the rights (chmod %s %s)", rights, shell.Quote(name))
		}
	}
	return ""
}

func pathOf(err *fs.PathError) string {
	if err == nil {
		return ""
	}
	return err.Path
}

// uidOf returns the owner of a file; 0 if it is not known.
func uidOf(info fs.FileInfo, err error) int {
	if err != nil {
		return 0
	}
	uid, _ := owner.Of(info)
	return uid
}

// elsewhere reports whether an error names a file that is neither in dir, or where it would be made, nor one of its parents.
func elsewhere(dir string, err error) bool {
	var path *fs.PathError
	if !errors.As(err, &path) {
		return false
	}
	file, fileErr := filepath.Abs(path.Path)
	dir, dirErr := filepath.Abs(dir)
	if fileErr != nil || dirErr != nil {
		return false
	}
	in := func(parent, child string) bool {
		rel, err := filepath.Rel(parent, child)
		return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
	}
	return !in(storage.Existing(dir), file) && !in(file, dir)
}

// reason is the part of an error that names the file and its cause.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Error()
	}
	return err.Error()
}
