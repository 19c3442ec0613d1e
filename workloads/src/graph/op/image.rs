//! Shapes of images: `n×c×h×w`.

use super::Tensor;
use crate::graph::tensor::shape_text;

/// Images, channels, height and width of a tensor.
///
/// # Errors
/// When it has other extents.
pub(super) fn image(x: &Tensor) -> Result<[u64; 4], String> {
    <[u64; 4]>::try_from(&x.shape[..]).map_err(|_| {
        format!("found {}, expected images x channels x height x width", shape_text(&x.shape))
    })
}

/// Extent of what a window of `kernel` makes of `side`, or none if it does not fit.
pub(super) fn windowed(side: u64, kernel: u64, stride: u64, pad: u64) -> Option<u64> {
    let room = side.checked_add(pad.checked_mul(2)?)?.checked_sub(kernel)?;
    Some(room.checked_div(stride)? + 1)
}

/// Height and width of what a window makes of an image.
///
/// # Errors
/// When it does not fit.
pub(super) fn windows(
    [height, width]: [u64; 2],
    kernel: [u64; 2],
    stride: [u64; 2],
    pad: [u64; 2],
) -> Result<[u64; 2], String> {
    let sides = [height, width];
    let made = [0, 1].map(|i| windowed(sides[i], kernel[i], stride[i], pad[i]));
    match made {
        [Some(h), Some(w)] if !kernel.contains(&0) => Ok([h, w]),
        _ => {
            let [kh, kw] = kernel;
            let [sh, sw] = stride;
            let [ph, pw] = pad;
            Err(format!(
                "a kernel of {kh}x{kw} (stride {sh}x{sw}, padding {ph}x{pw}) does not fit {height}x{width}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted_as_convolution_arithmetic_says() {
        assert_eq!(windows([224, 224], [7, 7], [2, 2], [3, 3]), Ok([112, 112]));
        assert_eq!(windows([112, 112], [3, 3], [2, 2], [1, 1]), Ok([56, 56]));
        assert_eq!(windows([3, 80], [3, 1], [1, 1], [0, 0]), Ok([1, 80]));
        assert_eq!(
            windows([3, 5], [7, 7], [1, 1], [0, 0]).unwrap_err(),
            "a kernel of 7x7 (stride 1x1, padding 0x0) does not fit 3x5"
        );
        assert!(windows([8, 8], [1, 1], [0, 1], [0, 0]).is_err());
    }
}
