package regular

import "errors"

// pipeWithoutReader does not occur: folders have no pipes.
var pipeWithoutReader = errors.New("pipe without a reader")
