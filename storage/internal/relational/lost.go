package relational

import (
	"errors"
	"fmt"

	"understudy/checkpointer"
	"understudy/internal/compact"
)

// Lost returns the error of reading a list, as checkpointer.ErrLost when what was stored of it is not there any more.
func Lost(err error) error {
	if !errors.Is(err, compact.ErrMissing) || errors.Is(err, checkpointer.ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", checkpointer.ErrLost, err)
}
