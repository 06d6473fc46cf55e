// Whether a function pointer of ours and a function of the real headers are called alike: same number of words, of
// the same size and class (address, integer, structure), in the same order.
#pragma once

#include <type_traits>

namespace plumbline::cuda {

template <typename A, typename B>
constexpr bool same_word() {
  constexpr bool pointers = std::is_pointer_v<A> && std::is_pointer_v<B>;
  constexpr bool integers =
      (std::is_integral_v<A> || std::is_enum_v<A>)&&(std::is_integral_v<B> || std::is_enum_v<B>);
  constexpr bool structures = std::is_class_v<A> && std::is_class_v<B> && std::is_trivially_copyable_v<A> &&
                              std::is_trivially_copyable_v<B>;
  return (pointers || integers || structures) && sizeof(A) == sizeof(B);
}

template <typename Ours, typename Theirs>
struct SameAbi : std::false_type {};
template <typename R, typename... P, typename S, typename... Q>
struct SameAbi<R (*)(P...), S (*)(Q...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(P) != sizeof...(Q)) {
      return false;
    } else {
      return same_word<R, S>() && (same_word<P, Q>() && ...);
    }
  }();
};

}  // namespace plumbline::cuda
