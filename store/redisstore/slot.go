package redisstore

// slot returns the hash slot of the identity of a key, which stands between its braces. It is the CRC-16 (XMODEM) of
// the Redis Cluster specification.
func slot(identity string) uint16 {
	var crc uint16
	for i := range len(identity) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^identity[i]]
	}
	return crc % 16384
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		table[i] = crc
	}
	return table
}()
