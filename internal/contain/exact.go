package contain

// Exact is a JSON value made ready to be compared with others: equal in type and value, numbers by value, objects without regard to order. It is immutable.
type Exact struct{ want value }

// ParseExact makes a value ready.
func ParseExact(raw []byte) (*Exact, error) {
	m, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	if m == nil {
		_, err := parse(raw) // no value
		return nil, err
	}
	return &Exact{m.want}, nil
}

// Equals reports whether a JSON text is the value.
func (e *Exact) Equals(doc []byte) bool { return e.want.matches(doc, true) }

// Term returns the term that documents have in the index whose key has this value; false: nil, or no scalar that is indexed.
func (e *Exact) Term(key string) (Term, bool) {
	if e == nil || e.want.kind != scalar || !indexable(key, e.want.text) {
		return Term{}, false
	}
	return Term{key, e.want.text}, true
}

// ItemTerm is Term for documents that have the value in a list: they have the term, or its Long.
func (e *Exact) ItemTerm(key string) (Term, bool) {
	term, ok := e.Term(key)
	term.Value = inList + term.Value
	return term, ok
}
