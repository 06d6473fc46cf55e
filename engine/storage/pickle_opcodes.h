// Opcodes of Python's pickles, protocols 0 to 5, by their names in Lib/pickle.py.
#pragma once

namespace plumbline::op {

inline constexpr unsigned char kMark = '(', kStop = '.', kPop = '0', kPopMark = '1', kDup = '2', kFloat = 'F',
                               kInt = 'I', kBinInt = 'J', kBinInt1 = 'K', kLong = 'L', kBinInt2 = 'M',
                               kNone = 'N', kPersId = 'P', kBinPersId = 'Q', kReduce = 'R', kString = 'S',
                               kBinString = 'T', kShortBinString = 'U', kUnicode = 'V', kBinUnicode = 'X',
                               kAppend = 'a', kBuild = 'b', kGlobal = 'c', kDict = 'd', kEmptyDict = '}',
                               kAppends = 'e', kGet = 'g', kBinGet = 'h', kInst = 'i', kLongBinGet = 'j',
                               kList = 'l', kEmptyList = ']', kObj = 'o', kPut = 'p', kBinPut = 'q',
                               kLongBinPut = 'r', kSetItem = 's', kTuple = 't', kEmptyTuple = ')',
                               kSetItems = 'u', kBinFloat = 'G', kBinBytes = 'B', kShortBinBytes = 'C';
inline constexpr unsigned char kProto = 0x80, kNewObj = 0x81, kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87,
                               kNewTrue = 0x88, kNewFalse = 0x89, kLong1 = 0x8a, kLong4 = 0x8b;
inline constexpr unsigned char kShortBinUnicode = 0x8c, kBinUnicode8 = 0x8d, kBinBytes8 = 0x8e,
                               kEmptySet = 0x8f, kAddItems = 0x90, kFrozenSet = 0x91, kNewObjEx = 0x92,
                               kStackGlobal = 0x93, kMemoize = 0x94, kFrame = 0x95, kByteArray8 = 0x96;

}  // namespace plumbline::op
