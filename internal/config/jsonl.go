package config

// jsonl is the folder of history.jsonl.
func (f *file) jsonl(v value, key string) {
	if dir, isText := v.data.(string); !isText || dir == "" {
		f.wrong(v, key, `is %s; name a folder, such as "./events"`, v.kind())
	} else {
		f.c.History.JSONL = f.abs(dir)
	}
}
