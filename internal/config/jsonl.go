package config

// jsonl is the folder of history.jsonl.
func (f *file) jsonl(v value, key string) {
	switch dir, isText := v.data.(string); {
	case !isText:
		f.wrong(v, key, `is %s; name a folder, such as "./events"`, v.kind())
	case dir == "":
		f.wrong(v, key, `is empty; name a folder, such as "./events", or remove it`)
	default:
		f.c.History.JSONL = f.abs(dir)
	}
}
