package protocol

import (
	"strconv"

	"understudy/internal/jsonobj"
)

// Gap says that not all events after a seq are kept.
type Gap struct {
	Since int64
	First int64 // the lowest seq that is kept; 0: none is
}

// GapCode is the code of the error by which clients learn of a Gap.
const GapCode = "resume_gap"

// Frame is the error of the connection by which clients learn of it: their SDKs report it and read on.
func (g *Gap) Frame() []byte {
	b := jsonobj.AppendText([]byte(`{"type":"error","id":null,"error":"`+GapCode+`","message":`), g.Message())
	return append(g.AppendMembers(b), '}')
}

// AppendMembers appends what the error has in addition to its code and text.
func (g *Gap) AppendMembers(b []byte) []byte {
	b = strconv.AppendInt(append(b, `,"since":`...), g.Since, 10)
	return strconv.AppendInt(append(b, `,"min_available_seq":`...), g.First, 10)
}

// Message is what clients read about it.
func (g *Gap) Message() string {
	return "Events after seq " + strconv.FormatInt(g.Since, 10) + " are no longer available; read the state of the thread again."
}
