package extensions

import (
	"encoding/json"
	"errors"
	"io/fs"

	"understudy/deerflow/settings"
)

// Middlewares returns the classes of middleware in Python that the file adds to DeerFlow's own agent.
func (f *File) Middlewares() ([]string, error) {
	o, err := f.file.Last()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, broken(err)
	}
	var list []any
	if err := json.Unmarshal(o.Get("middlewares"), &list); err != nil {
		return nil, nil //nolint:nilerr // no list has none
	}
	return settings.Classes(list), nil
}
