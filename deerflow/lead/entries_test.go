package lead

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// folder returns entries and an error, as a disk does that breaks in the middle.
type folder struct {
	list []fs.DirEntry
	err  error
}

func (f folder) ReadDir(int) ([]fs.DirEntry, error) { return f.list, f.err }

// A folder that cannot be read is an error, also when a part of it was read; only its end is none.
func TestFolderThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/a", nil, 0o600))
	some, err := os.ReadDir(dir)
	require.NoError(t, err)
	broken := errors.New("input/output error")
	for _, tt := range []struct {
		folder folder
		want   error
	}{{folder{nil, io.EOF}, nil}, {folder{some, nil}, nil}, {folder{nil, broken}, broken}, {folder{some, broken}, broken}} {
		got, err := entries(tt.folder)
		require.ErrorIs(t, err, tt.want)
		if tt.want == nil {
			require.Equal(t, tt.folder.list, got)
		} else {
			require.Empty(t, got)
		}
	}
}
