package policyfile

// FieldOf returns the field of a file for a field of ratelimit.Policy that its check names.
func FieldOf(goName string) string { return goFields[goName] }
