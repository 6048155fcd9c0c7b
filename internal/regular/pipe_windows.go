package regular

import "errors"

// noOtherEnd does not occur: folders have no pipes and sockets.
var noOtherEnd = errors.New("no other end")
