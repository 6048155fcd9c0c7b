package moving

import (
	"understudy/internal/app/advice"
	"understudy/internal/config"
)

// filled explains that work on the data folder of cfg ended because its disk is full: what was written before is whole, and the same command continues. Other errors
// stay as they are.
func filled(cfg *config.Config, err error) error {
	if cfg.Storage.DatabaseURL != "" || !advice.Full(err) || advice.From(err) != nil {
		return err
	}
	p := advice.Folder(cfg.Where("data"), cfg.Storage.Data, err)
	if p == nil { // another disk
		return err
	}
	p.Fix = "make room, and run the same command again: it continues where it ended; what was written is whole, and nothing has to be removed"
	return p
}
