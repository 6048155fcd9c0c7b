package moving

import (
	"context"
	"errors"
	"fmt"

	"understudy/internal/app/advice"
	"understudy/internal/config"
	"understudy/storage/sqlite"
)

// Manifest says what a backup holds.
type Manifest = sqlite.Manifest

// BackupOptions configure Backup.
type BackupOptions = sqlite.BackupOptions

// ErrNotFolder is returned for settings whose data is in no folder on disk: in Postgres, or in memory.
var ErrNotFolder = errors.New("no data folder on disk")

// ErrOccupied is returned for a data folder that has a database when it may not be replaced.
var ErrOccupied = sqlite.ErrOccupied

// Backup copies the data folder of cfg to a new folder, also while a server works on it.
func Backup(ctx context.Context, cfg *config.Config, to string, o BackupOptions) (*Manifest, error) {
	if err := onDisk(cfg); err != nil {
		return nil, err
	}
	m, err := sqlite.Backup(ctx, cfg.Storage.Data, to, o)
	if errors.Is(err, sqlite.ErrNoFolder) {
		return nil, fmt.Errorf("%s has no database to back up; name the data folder: understudy backup [TARGET] --data DIR", cfg.Storage.Data)
	}
	return m, ofFolder(cfg, to, err)
}

// ofFolder explains why a backup cannot read the data folder of cfg, or write its target. Other errors stay as they are.
func ofFolder(cfg *config.Config, to string, err error) error {
	if p := advice.Folder(cfg.Where("data"), cfg.Storage.Data, err); p != nil && !advice.Unwritable(err) { // the data folder is only read
		return p
	}
	return unusable(advice.Target, to, err)
}

// Restore verifies a backup and puts it into the data folder of cfg, of which no server may be running. aside is the ending of databases that are
// replaced; "": they are an ErrOccupied.
func Restore(ctx context.Context, cfg *config.Config, from, aside string, report sqlite.Report) (*Manifest, error) {
	if err := onDisk(cfg); err != nil {
		return nil, err
	}
	m, err := sqlite.Restore(ctx, from, cfg.Storage.Data, sqlite.RestoreOptions{Replace: aside, Report: report})
	return m, unusable(cfg.Where("data"), cfg.Storage.Data, err)
}

// unusable explains why nothing can be written to the folder that the setting names. Other errors stay as they are.
func unusable(setting, dir string, err error) error {
	p := advice.Folder(setting, dir, err)
	if p == nil {
		return err
	}
	if advice.Unwritable(err) {
		p.Fix += "; nothing was changed"
	}
	return p
}

func onDisk(cfg *config.Config) error {
	switch {
	case cfg.Storage.DatabaseURL != "":
		return fmt.Errorf("%w: the data is in Postgres (%s)", ErrNotFolder, cfg.DatabasePlace())
	case cfg.Storage.Data == sqlite.InMemory:
		return fmt.Errorf("%w: the data folder is in memory and gone at the end", ErrNotFolder)
	}
	return nil
}
