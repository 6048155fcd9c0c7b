package protocol

import (
	"understudy/bridge"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// EndNotSaved is the event of a record which says that the end of a run cannot be saved. Its data has the text as message.
const EndNotSaved = "end_not_saved"

// unsaved returns the event for such a record: an error of the connection, which the SDKs report before they read on, for the run may still succeed. It has no
// seq, since it is not kept: a reader resumes behind the event before it.
func unsaved(rec *bridge.Record) Event {
	b := append(make([]byte, 0, 512), "event: error\r\ndata: "...)
	start := len(b)
	b = jsonobj.AppendText(append(b, `{"type":"error","id":null,"error":"`+EndNotSaved+`","message":`...), jsonscan.Text(rec.Data, "message"))
	b = append(jsonobj.AppendText(append(b, `,"run_id":`...), string(rec.Run)), '}')
	return Event{Method: "error", Data: b[start:len(b):len(b)], frame: b}
}
